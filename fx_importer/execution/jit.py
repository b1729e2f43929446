"""Backend that runs linalg on tensors on the host CPU with MLIR's ExecutionEngine, a just-in-time compiler.

It also runs TOSA and StableHLO, which upstream passes lower to linalg.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch_mlir.execution_engine import ExecutionEngine

from fx_importer.diagnostics.trace import Trace
from fx_importer.execution.arena import place_results, plan_arena
from fx_importer.execution.backend import Loaded
from fx_importer.execution.call_signature import JIT, read_signature
from fx_importer.execution.compiled_function import CompiledFunction
from fx_importer.execution.kernel_outlining import (
    SMALL_TRIP_COUNT,
    outline_kernels,
    reassociate_sums,
    skip_optimization,
)
from fx_importer.execution.library_calls import bind_library, outline_library_calls
from fx_importer.execution.library_kernels import Kernels
from fx_importer.execution.loop_interchange import interchange_loops, read_initial_values
from fx_importer.execution.module_functions import (
    check_dialects,
    dialects_of,
    function_named,
    functions_of,
)
from fx_importer.execution.native_products import routines
from fx_importer.execution.parallel_loops import launch_on_threads
from fx_importer.execution.runtime_checks import RUN, insert_checks, relax_layout_casts
from fx_importer.execution.scalar_expansion import expand_scalars, move_bits
from fx_importer.execution.stubs import Stubs, declare_operator_stubs
from fx_importer.execution.vector_math import define_functions, replace_functions
from fx_importer.execution.weight_table import elide_weights, hoist_weights, link_weights, weight_table
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.module_contents import copy_module
from fx_importer.pipelines.llvm import LLVM
from fx_importer.pipelines.runner import run_stage
from fx_importer.pipelines.stage import Stage
from fx_importer.pipelines.to_linalg import TO_LINALG

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


@dataclass(frozen=True)
class JitBackend:
    """MLIR's ExecutionEngine."""

    name: str = "jit"
    optimization: int = 2
    """Optimization level of LLVM, 0 to 3. Below 3, loops that run for microseconds are optimized for size."""
    stubs: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]], hash=False)
    """Python functions to call in place of operators, by name, for the operator stubs of a module."""

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Compile the function ``func_name`` of ``module``, which does not change.

        The result takes dense tensors on the CPU, and scalars; it returns a tuple of the same. Only arguments that are
        memrefs are written. Non-contiguous tensors are copied first; others are read in place. Calls from several
        threads are serialized. The result raises `UsageError` for arguments that do not fit, and for failed assertions,
        indices out of range and integer divisions by zero.

        Raises:
            UsageError: if there is no such function, or it takes or returns anything but builtin tensors and scalars,
                or has operations of dialects that are not lowered to CPUs.
            StageFailed: if the module cannot be compiled.
        """
        copy = copy_module(module.operation)
        resources = elide_weights(copy)
        trace = Trace()
        for dialect in dialects_of(copy) & TO_LINALG.keys():
            _run(TO_LINALG[dialect], copy, trace)
        stubs = Stubs(copy, self.stubs)
        function = _entry(copy, func_name)
        declare_operator_stubs(copy)
        signature = read_signature(function)
        fuse, bufferize, loops, scalars, llvm = LLVM.stages
        read_initial_values(copy)
        with trace.stage("library"):
            kernels = Kernels(outline_library_calls(copy))
        _run(fuse, copy, trace)
        check_dialects(copy, _DIALECTS, JIT)
        with trace.stage("constants"):
            weights = hoist_weights(function)
            link_weights(copy, resources)
            interchange_loops(copy)
        _run(bufferize, copy, trace)
        relax_layout_casts(copy)
        bind_library(copy, kernels)
        arena = plan_arena(function)
        placed = place_results(function)
        _run(loops, copy, trace)
        with trace.stage("kernels"):
            messages = insert_checks(copy)
            expand_scalars(copy)
            outline_kernels(copy, small_trip_count=SMALL_TRIP_COUNT if self.optimization < 3 else 0)
            skip_optimization(function)
            reassociate_sums(copy)
            replace_functions(copy)
        _run(scalars, copy, trace)
        define_functions(copy)
        _run(llvm, copy, trace)
        move_bits(copy)
        launch_on_threads(copy)
        with trace.stage("compile"):
            callbacks = stubs.callbacks | kernels.callbacks
            engine, run, packed = _compile(copy, func_name, self.optimization, callbacks)
        table, buffers = weight_table(weights, resources)
        return CompiledFunction(
            signature,
            (table, arena),
            placed,
            messages,
            run,
            packed,
            (lambda: stubs.take_failure() or kernels.take_failure()) if callbacks else None,
            keep=(engine, stubs, kernels, buffers),
        )


def _entry(module: ir.Module, name: str) -> func_d.FuncOp:
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


def _run(stage: Stage, module: ir.Module, trace: Trace) -> None:
    with trace.stage(stage.name, pipeline=str(stage)):
        run_stage(stage, module)


def _compile(
    module: ir.Module, name: str, level: int, callbacks: Mapping[str, Any]
) -> tuple[ExecutionEngine, Callable[[int], None], ctypes.c_void_p]:
    """Return the engine, the packed `RUN` and the address of the packed function ``name``."""
    messages: list[str] = []

    def keep(diagnostic: ir.Diagnostic) -> bool:
        messages.append(diagnostic.message)
        return True

    # The engine prints diagnostics, and raises an error without them.
    handler = module.context.attach_diagnostic_handler(keep)
    try:
        # Object dumping would keep a second copy of the code.
        engine = ExecutionEngine(module, opt_level=level, enable_object_dump=False)
        for symbol, callback in callbacks.items():
            engine.raw_register_runtime(symbol, ctypes.cast(callback, ctypes.c_void_p))
        for symbol, address in routines().items():
            engine.raw_register_runtime(symbol, ctypes.c_void_p(address))
        run, function = engine.raw_lookup(RUN), engine.raw_lookup(f"_mlir_ciface_{name}")
    except RuntimeError as error:
        raise RuntimeError("; ".join([str(error), *messages])) from error
    finally:
        handler.detach()
    if not run or not function:
        raise RuntimeError("the code could not be linked: standard error has the names of the missing functions")
    return engine, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(run), ctypes.c_void_p(function)
