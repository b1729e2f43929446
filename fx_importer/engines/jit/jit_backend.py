"""Backend that runs linalg on tensors on the host CPU with MLIR's ExecutionEngine, a just-in-time compiler.

It also runs TOSA and StableHLO, which upstream passes lower to linalg.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from fx_importer.calls.backend import Loaded
from fx_importer.calls.call_signature import JIT, read_signature
from fx_importer.diagnostics.trace import Trace
from fx_importer.engines.function_extraction import check_dialects, check_one_device
from fx_importer.engines.jit.arena import free_slots, new_slots, place_results, plan_arena, plan_slots
from fx_importer.engines.jit.compiled_cache import Entry, Program, entry_of
from fx_importer.engines.jit.compiled_function import CompiledFunction, InPlaceFunction
from fx_importer.engines.jit.engine_code import Code, EngineCode
from fx_importer.engines.jit.library_binding import bind_library
from fx_importer.engines.jit.library_kernels import Kernels, packed_elements
from fx_importer.engines.jit.native_products import routines
from fx_importer.engines.jit.object_code import SUPPORTED, ObjectCode
from fx_importer.engines.jit.stubs import Stubs, declare_operator_stubs, pass_destinations
from fx_importer.engines.jit.weight_table import Resource, elide_weights, hoist_weights, link_weights, weight_table
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.functions import dialects_of, function_named, functions_of, state_aliases
from fx_importer.mlir.module_contents import copy_module
from fx_importer.options import RunOptions
from fx_importer.pipelines.llvm import LLVM
from fx_importer.pipelines.runner import run_stage
from fx_importer.pipelines.stage import Stage
from fx_importer.pipelines.to_linalg import IN_PLACE, TO_LINALG
from fx_importer.rewrites.linalg.channels_last import use_channels_last
from fx_importer.rewrites.linalg.exact_floats import int8_matmuls_to_f32
from fx_importer.rewrites.linalg.loop_interchange import interchange_loops, read_initial_values
from fx_importer.rewrites.llvm.empty_tensors import separate_empty_tensors
from fx_importer.rewrites.llvm.fusion_limits import keep_from_recomputation, remove_marks
from fx_importer.rewrites.llvm.kernel_outlining import (
    SMALL_TRIP_COUNT,
    outline_kernels,
    reassociate_sums,
    skip_optimization,
)
from fx_importer.rewrites.llvm.library_calls import outline_library_calls
from fx_importer.rewrites.llvm.parallel_loops import launch_on_threads
from fx_importer.rewrites.llvm.runtime_checks import RUN, insert_checks, relax_layout_casts
from fx_importer.rewrites.llvm.scalar_expansion import expand_scalars, move_bits
from fx_importer.rewrites.llvm.vector_math import define_functions, replace_functions
from fx_importer.rewrites.llvm.vector_sums import vectorize_sums

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
    reads_weights_in_place: ClassVar[bool] = True
    """Whether loaded functions read weights in the memory of the model, which must not change then."""
    cache: bool | None = None
    """Take compiled code from the cache, or keep it there; by default if ``FX_IMPORTER_CACHE_DIR`` is set."""

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Compile the function ``func_name`` of ``module``, which does not change.

        The result takes dense tensors on the CPU, and scalars; it returns a tuple of the same. Only arguments that are
        memrefs are written. Non-contiguous tensors are copied first; others are read in place. Calls from several
        threads are serialized. State of which the function writes slices is copied first, unless `keep_state` takes it,
        which returns it. The result raises `UsageError` for arguments that do not fit, and for failed assertions,
        indices out of range and integer divisions by zero.

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
        int8_matmuls_to_f32(copy.operation)
        resources = elide_weights(copy)
        options = (func_name, self.optimization)
        entry = entry_of(copy, *options) if count == 1 and RunOptions(cache=self.cache).is_cached else None
        parts = _kept(entry, copy) or self._compiled(copy, func_name, resources, entry, dumps=count > 1)
        program, stubs, kernels, code = parts
        codes = [code]
        if count > 1 and isinstance(code, EngineCode):
            data, addresses = code.object_file(), _addresses(stubs.callbacks | kernels.callbacks)
            codes += [ObjectCode(data, addresses) for _ in range(count - 1)]
        table, buffers = weight_table(program.weights, resources)
        kernels.weights = {each.ctypes.data for each in buffers}
        take_failure = (
            (lambda: stubs.take_failure() or kernels.take_failure()) if stubs.callbacks or kernels.callbacks else None
        )
        functions: list[CompiledFunction] = []
        for each in codes:
            memory, slots = [table, torch.empty(program.arena, dtype=torch.uint8)], new_slots(program.slots)
            if program.slots:
                memory.append(torch.frombuffer(slots, dtype=torch.int64))
            function = CompiledFunction(
                program.signature,
                memory,
                program.placed,
                program.messages,
                ctypes.CFUNCTYPE(None, ctypes.c_void_p)(each[RUN]),
                ctypes.c_void_p(each[_callable_name(func_name)]),
                take_failure,
                keep=(each, stubs, kernels, buffers),
            )
            if program.slots:
                weakref.finalize(function, free_slots, slots).atexit = False
            functions.append(function)
        written = {at: place for at, place in aliases.items() if program.signature.written(place)}
        return [InPlaceFunction(each, written) if written else each for each in functions]

    def _compiled(
        self, module: ir.Module, func_name: str, resources: Sequence[Resource], entry: Entry | None, *, dumps: bool
    ) -> _Parts:
        """Compile ``module``, whose weights are elided, in place. Code that ``dumps`` can be loaded again."""
        trace = Trace()
        for dialect in dialects_of(module) & TO_LINALG.keys():
            _run(TO_LINALG[dialect], module, trace)
        _run(IN_PLACE, module, trace)
        stubs = Stubs(module, self.stubs)
        function = _entry_point(module, func_name)
        declare_operator_stubs(module)
        signature = read_signature(function)
        fuse, bufferize, loops, scalars, llvm = LLVM.stages
        read_initial_values(module)
        with trace.stage("library"):
            use_channels_last(module.operation, elements=packed_elements())
            kernels = Kernels(outline_library_calls(module))
        keep_from_recomputation(module)
        _run(fuse, module, trace)
        remove_marks(module)
        check_dialects(module, _DIALECTS, JIT)
        with trace.stage("constants"):
            weights = hoist_weights(function)
            if link_weights(module, resources):
                entry = None  # the code has elements of weights
            interchange_loops(module)
            separate_empty_tensors(module)
        _run(bufferize, module, trace)
        relax_layout_casts(module)
        bind_library(module, kernels)
        pass_destinations(module)
        arena, slots = plan_arena(function), plan_slots(function)
        placed = place_results(function)
        _run(loops, module, trace)
        with trace.stage("kernels"):
            messages = insert_checks(module)
            expand_scalars(module)
            vectorize_sums(module)
            outline_kernels(module, small_trip_count=SMALL_TRIP_COUNT if self.optimization < 3 else 0)
            skip_optimization(function)
            reassociate_sums(module)
            replace_functions(module)
        _run(scalars, module, trace)
        define_functions(module)
        _run(llvm, module, trace)
        move_bits(module)
        launch_on_threads(module)
        program = Program(signature, messages, weights, arena, slots, placed, kernels.functions)
        with trace.stage("compile"):
            addresses = _addresses(stubs.callbacks | kernels.callbacks)
            called = (RUN, _callable_name(func_name))
            engine = EngineCode(module, self.optimization, called, addresses, dumps=dumps or entry is not None)
            code = engine if entry is None else _keep(engine, entry, program, addresses)
        return program, stubs, kernels, code


def _entry_point(module: ir.Module, name: str) -> func_d.FuncOp:
    """Return the function ``name``, callable from C; all others become private."""
    entry = function_named(module, name)
    with module.context:
        for each in functions_of(module).values():
            each.attributes["sym_visibility"] = ir.StringAttr.get("private")
        entry.attributes["sym_visibility"] = ir.StringAttr.get("public")
        entry.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        read_only = {"bufferization.writable": ir.BoolAttr.get(False)}  # only for tensors: memrefs are written
        given = entry.attributes["arg_attrs"] if "arg_attrs" in entry.attributes else [{}] * len(entry.arguments)
        described = [{each.name: each.attr for each in ir.DictAttr(old)} if old else {} for old in given]
        tensors = [isinstance(argument.type, ir.RankedTensorType) for argument in entry.arguments]
        entry.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [
                ir.DictAttr.get(old | read_only if is_tensor else old)
                for old, is_tensor in zip(described, tensors, strict=True)
            ]
        )
    return entry


def _callable_name(function: str) -> str:
    """Return the name of the function that takes the arguments of ``function`` by address."""
    return f"_mlir_ciface_{function}"


def _run(stage: Stage, module: ir.Module, trace: Trace) -> None:
    with trace.stage(stage.name, pipeline=str(stage)):
        run_stage(stage, module)


def _kept(entry: Entry | None, module: ir.Module) -> _Parts | None:
    """Return what ``entry`` holds; None if there is nothing that can be loaded."""
    found = entry.read() if entry else None
    if found is None:
        return None
    program, data = found
    kernels = Kernels(program.kernels)
    try:
        return program, Stubs(module), kernels, ObjectCode(data, _addresses(kernels.callbacks))
    except (ValueError, OSError):
        return None


def _addresses(callbacks: Mapping[str, Any]) -> dict[str, int]:
    """Return the addresses of what compiled code calls, by symbol."""
    given = {name: ctypes.cast(each, ctypes.c_void_p).value or 0 for name, each in callbacks.items()}
    return given | routines()


def _keep(code: EngineCode, entry: Entry, program: Program, addresses: Mapping[str, int]) -> Code:
    """Write ``code`` to ``entry``, and return it as another process will load it; unchanged if that fails."""
    data = code.object_file()
    try:
        loaded = ObjectCode(data, addresses)
    except (ValueError, OSError):
        return code
    entry.write(program, data)
    return loaded
