"""Lowering of unsupported operators to fallback output types, as functions that are then inlined."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.stages import new_trace, run_pipeline
from fx_importer.diagnostics.causes import Cause
from fx_importer.diagnostics.operator_output_types import OperatorOutputType, taken_by_fallback
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import CrashedError, StageFailed
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.declarations import StubDefinition, places_of_calls
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.module_contents import copy_module
from fx_importer.output_types import OutputType
from fx_importer.pipelines import VERIFIERS
from fx_importer.pipelines.isolated_runner import stage_runner
from fx_importer.pipelines.runner import run_text
from fx_importer.probing import Prober

_INLINE = "builtin.module(inline{default-pipeline=},symbol-dce)"
"""Inlining without simplification, which preserves the form that the stages established."""


@dataclass(frozen=True)
class Taken:
    """The unsupported operators that the fallback supports."""

    modules: Mapping[str, ir.Module]
    """Lowered functions of operators, by name."""
    operator_output_types: tuple[OperatorOutputType, ...]
    left: frozenset[str]
    """The calls that no fallback output type supports."""


@dataclass
class Fallback:
    """Output types for operators that the requested one does not support."""

    compilation: Compilation
    prober: Prober | None = None
    """Its process runs the stages, if there is one."""
    modules: dict[str, ir.Module] = field(default_factory=dict[str, ir.Module])
    """Lowered functions of the operators taken so far, by name."""
    operator_output_types: list[OperatorOutputType] = field(default_factory=list[OperatorOutputType])

    def taking(self, defined: Mapping[str, StubDefinition], causes: Mapping[str, Cause]) -> Taken:
        """Lower the functions of operators. ``causes`` has the reason for each call."""
        modules: dict[str, ir.Module] = {}
        operator_output_types: list[OperatorOutputType] = []
        left: set[str] = set()
        for name, each in defined.items():
            found = self._lowered(each.module) if each.module else None
            if found is None:
                left.add(each.call)
            else:
                output_type, modules[name] = found
                operator_output_types.append(taken_by_fallback(output_type, causes[each.call]))
        return Taken(modules, tuple(operator_output_types), frozenset(left))

    def take(self, taken: Taken) -> None:
        """Link the lowered functions into their calls with `link`."""
        self.modules |= taken.modules
        self.operator_output_types += taken.operator_output_types

    def take_defined(self, defined: Mapping[str, StubDefinition], module: ir.Operation) -> None:
        """Lower functions from user rules that ``module`` calls. Raises the errors of `run_pipeline`."""
        if not defined:
            return
        places = places_of_calls(module)
        reason = f"no rule lowers it into {self.compilation.options.output_type.value}"
        for name, each in defined.items():
            assert each.module is not None
            assert each.into is not None
            self.modules[name] = self._run(each.module, each.into, new_trace(self.compilation.options, ()))
            found = tuple(places[name])
            self.operator_output_types.append(OperatorOutputType(each.call, each.into, len(found), reason, found))

    def _lowered(self, defined: ir.Module) -> tuple[OutputType, ir.Module] | None:
        """Return the first output type that supports a function, and the lowered function."""
        for output_type in self.compilation.options.lowering.fallback:
            with suppress(StageFailed, CrashedError):
                return output_type, self._run(defined, output_type, Trace())
        return None

    def _run(self, defined: ir.Module, output_type: OutputType, trace: Trace) -> ir.Module:
        """Return the lowered form of a function in the torch dialect."""
        module = copy_module(defined.operation)
        pipeline = self.compilation.pipeline_of(output_type)
        if self.compilation.rules:
            pipeline = pipeline.without_passes(*VERIFIERS)
        run = self.prober.runner(module) if self.prober else stage_runner(module, self.compilation.options.running)
        run_pipeline(pipeline, module, trace, run)
        return module

    def link(self, module: ir.Module) -> None:
        """Inline the functions that the fallback lowered into their calls in the lowered ``module``."""
        if not self.modules:
            return
        declared = functions_of(module)
        for name, part in self.modules.items():
            declared[name].operation.erase()
            for op in part.body.operations:
                copy = op.operation.clone(ip=ir.InsertionPoint(module.body))
                if isinstance(op, func_d.FuncOp):
                    copy.attributes["sym_visibility"] = ir.StringAttr.get("private", module.context)
        run_text(_INLINE, module)
