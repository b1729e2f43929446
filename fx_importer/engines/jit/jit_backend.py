"""Backend that runs linalg on tensors on the host CPU with MLIR's ExecutionEngine, a just-in-time compiler.

It also runs TOSA and StableHLO, which upstream passes lower to linalg.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fx_importer.calls.backend import Loaded
from fx_importer.calls.call_signature import JIT, read_signature
from fx_importer.calls.memref import free
from fx_importer.diagnostics.observers import stage_observers
from fx_importer.diagnostics.trace import Trace
from fx_importer.engines.function_extraction import check_dialects, check_one_device
from fx_importer.engines.jit.compiled_cache import Entry, Program, entry_of
from fx_importer.engines.jit.compiled_function import CompiledFunction, InPlaceFunction
from fx_importer.engines.jit.engine_code import Code, EngineCode
from fx_importer.engines.jit.library_kernels import Kernels
from fx_importer.engines.jit.object_code import SUPPORTED, ObjectCode
from fx_importer.engines.jit.pipeline import pipeline
from fx_importer.engines.jit.stubs import Stubs
from fx_importer.engines.jit.weight_table import Resource, elide_weights, link_weights, weight_table
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.functions import dialects_of, function_named, state_aliases
from fx_importer.mlir.module_contents import copy_module
from fx_importer.options import RunOptions
from fx_importer.pipelines.llvm import CONSTANTS, ENTRY, FUSE, INTEGERS, TO_LLVM
from fx_importer.pipelines.pipeline import Pipeline
from fx_importer.pipelines.runner import run_stage
from fx_importer.process.scratch import full_disk_errors
from fx_importer.rewrites.llvm.arena import ARENA, PLACED_RESULTS, SLOTS
from fx_importer.rewrites.llvm.blas_calls import routines
from fx_importer.rewrites.llvm.entry_point import read_fact, required_fact
from fx_importer.rewrites.llvm.library_functions import library_functions_of
from fx_importer.rewrites.llvm.operator_stubs import DESTINATIONS
from fx_importer.rewrites.llvm.runtime_checks import MESSAGES, RUN
from fx_importer.rewrites.llvm.weight_hoisting import weights_of

_WORDS_OF_SLOT = 5
"""Of the descriptor of a block of bytes: allocated and aligned address, offset, size and stride."""


def new_slots(count: int) -> Any:
    """Return the descriptors of slots without memory, as an array of C: they may be freed where tensors are fake."""
    return (ctypes.c_int64 * (count * _WORDS_OF_SLOT))()


def free_slots(slots: Sequence[int]) -> None:
    """Free the memory of slots by their descriptors ``slots``."""
    for allocated in slots[::_WORDS_OF_SLOT]:
        free(allocated)


_DIALECTS = {
    *(
        "affine",
        "arith",
        "bufferization",
        "builtin",
        "cf",
        "complex",
        "func",
        "index",
        "linalg",
        "llvm",
        "math",
        "memref",
    ),
    *("ml_program", "scf", "tensor", "ub"),
}


_Parts = tuple[Program, Stubs, Kernels, Code]
"""A program, what it calls, and its code."""


@dataclass(frozen=True)
class JitBackend:
    """MLIR's ExecutionEngine."""

    name: str = "jit"
    optimization: int = 2
    """Optimization level of LLVM, 0 to 3. Below 3, loops that run for microseconds are optimized for size."""
    stubs: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]], hash=False)
    """Python functions to call in place of operators, by name, for the operator stubs of a module."""
    cache: bool | None = None
    """Take compiled code from the cache, or keep it there; by default if ``FX_IMPORTER_CACHE_DIR`` is set."""

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Compile the function ``func_name`` of ``module``, which does not change.

        The result takes dense tensors on the CPU, and scalars; it returns a tuple of the same. Only arguments that are
        memrefs are written. Non-contiguous tensors are copied first; others are read in place. Calls from several
        threads are serialized. If the function writes slices of state, the state is copied first, unless
        `keep_state` takes it, which returns it. The result raises `UsageError` for arguments that do not fit, and for
        failed assertions, indices out of range and integer divisions by zero.

        Raises:
            UsageError: if no function has that name, or it takes or returns anything but builtin tensors and scalars,
                or has operations of dialects that are not lowered to CPUs.
            StageFailed: if the module cannot be compiled.
        """
        return self.load_several(module, func_name, 1)[0]

    def load_several(self, module: ir.Module, func_name: str, count: int) -> list[Loaded]:
        """Compile a function as `load` does, and return it ``count`` times, for calls that run at the same time.

        Each has code of its own, since code that stops jumps to where it was called last.
        """
        if count > 1 and not SUPPORTED:
            return [self.load(module, func_name) for _ in range(count)]
        check_one_device(module)
        copy = copy_module(module.operation)
        aliases = state_aliases(function_named(copy, func_name))
        stages = _Stages(pipeline(dialects_of(copy), func_name, self.optimization), copy)
        stages.run_through(INTEGERS.name)  # reads elements of weights
        resources = elide_weights(copy)
        options = (func_name, self.optimization)
        entry = entry_of(copy, *options) if count == 1 and RunOptions(cache=self.cache).is_cached else None
        parts = _kept(entry, copy) or self._compiled(copy, func_name, stages, resources, entry, dumps=count > 1)
        program, stubs, kernels, code = parts
        codes = [code]
        if count > 1 and isinstance(code, EngineCode):
            with full_disk_errors():
                data, addresses = code.object_file(), _addresses(stubs.callbacks | kernels.callbacks)
            codes += [ObjectCode(data, addresses) for _ in range(count - 1)]
        table, buffers = weight_table(program.weights, resources)
        kernels.weights = {buffer.ctypes.data for buffer in buffers}
        take_failure = (
            (lambda: stubs.take_failure() or kernels.take_failure()) if stubs.callbacks or kernels.callbacks else None
        )
        functions: list[CompiledFunction] = []
        for machine_code in codes:
            memory, slots = [table, torch.empty(program.arena, dtype=torch.uint8)], new_slots(program.slots)
            if program.slots:
                memory.append(torch.frombuffer(slots, dtype=torch.int64))
            function = CompiledFunction(
                program.signature,
                memory,
                program.placed,
                program.messages,
                ctypes.CFUNCTYPE(None, ctypes.c_void_p)(machine_code[RUN]),
                ctypes.c_void_p(machine_code[_callable_name(func_name)]),
                take_failure,
                keep=(machine_code, stubs, kernels, buffers),
            )
            if program.slots:
                weakref.finalize(function, free_slots, slots).atexit = False
            functions.append(function)
        written = {at: argument for at, argument in aliases.items() if program.signature.written(argument)}
        return [InPlaceFunction(function, written) if written else function for function in functions]

    def _compiled(
        self,
        module: ir.Module,
        func_name: str,
        stages: _Stages,
        resources: Sequence[Resource],
        entry: Entry | None,
        *,
        dumps: bool,
    ) -> _Parts:
        """Compile ``module``, whose weights are elided, in place. Code that ``dumps`` can be loaded again."""
        stages.run_through(ENTRY)
        stubs = Stubs(module, self.stubs)
        signature = read_signature(function_named(module, func_name))
        stages.run_through(FUSE.name)
        check_dialects(module, _DIALECTS, JIT)
        stages.run_through(CONSTANTS.name)
        if link_weights(module, resources):
            entry = None  # the code has elements of weights
        stages.run_through(TO_LLVM.name)
        required_fact(module, DESTINATIONS)
        program = Program(
            signature,
            messages=required_fact(module, MESSAGES),
            weights=weights_of(module),
            arena=required_fact(module, ARENA),
            slots=read_fact(module, SLOTS) or 0,
            placed=required_fact(module, PLACED_RESULTS),
            kernels=library_functions_of(module),
        )
        kernels = Kernels(program.kernels)
        with stages.trace.stage("compile"):
            addresses = _addresses(stubs.callbacks | kernels.callbacks)
            called = (RUN, _callable_name(func_name))
            engine = EngineCode(module, self.optimization, called, addresses, dumps=dumps or entry is not None)
            code = engine if entry is None else _keep(engine, entry, program, addresses)
        return program, stubs, kernels, code


class _Stages:
    """The stages of a pipeline, which run in order on a module, with pauses to read data from the module."""

    def __init__(self, pipeline: Pipeline, module: ir.Module):
        self._module = module
        self._left = iter(pipeline.stages)
        self.trace = Trace(planned=(*(stage.name for stage in pipeline.stages), "compile"))
        self._observed = module if stage_observers() else None

    def run_through(self, name: str) -> None:
        """Run the next stages, up to and including ``name``."""
        for stage in self._left:
            with self.trace.stage(stage.name, self._observed, pipeline=str(stage)):
                run_stage(stage, self._module)
            if stage.name == name:
                return


def _callable_name(function: str) -> str:
    """Return the name of the function that takes the arguments of ``function`` by address."""
    return f"_mlir_ciface_{function}"


def _kept(entry: Entry | None, module: ir.Module) -> _Parts | None:
    """Return what ``entry`` holds; None if there is nothing that can be loaded."""
    stored = entry.read() if entry else None
    if stored is None:
        return None
    program, data = stored
    kernels = Kernels(program.kernels)
    try:
        return program, Stubs(module), kernels, ObjectCode(data, _addresses(kernels.callbacks))
    except (ValueError, OSError):
        return None


def _addresses(callbacks: Mapping[str, Any]) -> dict[str, int]:
    """Return the addresses of the functions that compiled code calls, by symbol."""
    addresses = {name: ctypes.cast(callback, ctypes.c_void_p).value or 0 for name, callback in callbacks.items()}
    return addresses | routines()


def _keep(code: EngineCode, entry: Entry, program: Program, addresses: Mapping[str, int]) -> Code:
    """Write ``code`` to ``entry``, and return it as another process will load it; unchanged if that fails."""
    try:
        data = code.object_file()
        loaded = ObjectCode(data, addresses)
    except (ValueError, OSError):
        return code
    entry.write(program, data)
    return loaded
