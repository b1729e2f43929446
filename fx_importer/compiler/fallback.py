"""Operators that an output type refuses, lowered to others: a function each, which then goes where it is called."""

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
from fx_importer.execution.module_functions import functions_of
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.declarations import StubDefinition, places_of_calls
from fx_importer.mlir.module_contents import copy_module
from fx_importer.output_types import OutputType
from fx_importer.pipelines import VERIFIERS
from fx_importer.pipelines.isolated_runner import stage_runner
from fx_importer.pipelines.runner import run_text

_INLINE = "builtin.module(inline{default-pipeline=},symbol-dce)"
"""Nothing is simplified on the way: what the stages have put in order stays so."""


@dataclass(frozen=True)
class Taken:
    """What the fallback takes of what was refused."""

    modules: Mapping[str, ir.Module]
    """The function of an operator, lowered, by its name."""
    operator_output_types: tuple[OperatorOutputType, ...]
    left: frozenset[str]
    """The calls that no output type of it takes."""


@dataclass
class Fallback:
    """The output types that operators go to which are refused."""

    compilation: Compilation
    modules: dict[str, ir.Module] = field(default_factory=dict[str, ir.Module])
    """What it has taken: the function of an operator, lowered, by its name."""
    operator_output_types: list[OperatorOutputType] = field(default_factory=list[OperatorOutputType])

    def taking(self, defined: Mapping[str, StubDefinition], causes: Mapping[str, Cause]) -> Taken:
        """Lower the functions of operators; ``causes``, by call, say why that has to be."""
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
        """Have what was lowered stand where it is called: see `link`."""
        self.modules |= taken.modules
        self.operator_output_types += taken.operator_output_types

    def take_defined(self, defined: Mapping[str, StubDefinition], module: ir.Operation) -> None:
        """Lower functions that rules of the user's made, which ``module`` calls. Raises as `run_pipeline` does."""
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
        """Return the first output type that takes a function, and the function lowered."""
        for output_type in self.compilation.options.lowering.fallback:
            with suppress(StageFailed, CrashedError):
                return output_type, self._run(defined, output_type, Trace())
        return None

    def _run(self, defined: ir.Module, output_type: OutputType, trace: Trace) -> ir.Module:
        """Return a function of the torch dialect lowered."""
        module = copy_module(defined.operation)
        pipeline = self.compilation.pipeline_of(output_type)
        if self.compilation.rules:
            pipeline = pipeline.without_passes(*VERIFIERS)
        run_pipeline(pipeline, module, trace, stage_runner(module, self.compilation.options.running))
        return module

    def link(self, module: ir.Module) -> None:
        """Put what the fallback took in the places where ``module``, lowered, calls it."""
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
