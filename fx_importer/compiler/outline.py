"""Lowering of modules with unsupported operators, which are outlined or lowered to fallback output types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.diagnose import investigator, prober_for
from fx_importer.compiler.stages import new_trace, run_pipeline
from fx_importer.diagnostics.causes import Cause
from fx_importer.diagnostics.operator_output_types import OperatorOutputType, operators_lowered_to, taken_by_fallback
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import CrashedError, StageFailed
from fx_importer.importing import ImportResult
from fx_importer.manifest import OperatorStub
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.declarations import StubDefinition, places_of_calls, stubs_in
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.module_contents import copy_module, replace_contents
from fx_importer.options import Unsupported
from fx_importer.output_types import OutputType
from fx_importer.pipelines import VERIFIERS, Pipeline
from fx_importer.pipelines.isolated_runner import RunStage, stage_runner
from fx_importer.pipelines.runner import run_text
from fx_importer.probing import Prober, outline

_ROUNDS = 4
"""Maximum number of lowering attempts. Some operators fail only after others have been outlined."""


@dataclass(frozen=True)
class OutlineOutcome:
    """Stubs and fallbacks of a lowering."""

    operator_stubs: Mapping[str, OperatorStub]
    """Definitions of the stubs that the module declares."""
    operator_output_types: tuple[OperatorOutputType, ...] = ()
    """Output types of operators, with a fallback."""

    @property
    def fallback(self) -> tuple[str, ...]:
        """The fallback output types that were used."""
        return tuple(
            dict.fromkeys(operator.output_type.value for operator in self.operator_output_types if operator.reason)
        )


def lower_imported(
    imported: ImportResult, compilation: Compilation, trace: Trace, prober: Prober | None
) -> OutlineOutcome:
    """Lower the module in place. Operators that fail go to the fallback or to PyTorch if the options allow it.

    Stages run in the process of ``prober``, if there is one, or else where the options select.

    Raises:
        StageFailed: if a stage fails for another cause than an operator that can be outlined.
        CrashedError: if a stage ends its own process; likewise.
    """
    module, options = imported.module, compilation.options
    fallback = Fallback(compilation, prober)
    fallback.take_defined(imported.defined, module.operation)
    pipeline = compilation.pipeline
    if options.lowering.lowerings or options.importing.outline_layers or stubs_in(module.operation):
        pipeline = pipeline.without_passes(*VERIFIERS)  # which reject calls, and the contract checks what rules emit
    if options.lowering.fallback or options.lowering.unsupported is Unsupported.OUTLINE:
        _lower_in_rounds(module, pipeline, fallback, compilation, trace, prober)
    else:
        run = _runner(module, compilation, prober)
        run_pipeline(pipeline, module, trace, run, options.printing)
    stubs = stubs_in(module.operation if trace.imported is None else trace.imported)
    stubs = {name: stub for name, stub in stubs.items() if name not in fallback.modules}
    if not options.lowering.fallback:
        return OutlineOutcome(stubs)
    with trace.stage("fallback", module):
        fallback.link(module)
    lowered = operators_lowered_to(options.output_type, trace.imported) if trace.imported else []
    return OutlineOutcome(stubs, (*fallback.operator_output_types, *lowered))


def _runner(module: ir.Module, compilation: Compilation, prober: Prober | None) -> RunStage:
    return prober.runner(module) if prober else stage_runner(module, compilation.options.running)


def _lower_in_rounds(
    module: ir.Module,
    pipeline: Pipeline,
    fallback: Fallback,
    compilation: Compilation,
    trace: Trace,
    prober: Prober | None,
) -> None:
    """Lower ``module``; when it fails, outline the operators that caused it and lower the module again."""
    options = compilation.options
    run = _runner(module, compilation, prober)
    investigate = investigator(compilation, prober=prober or prober_for(compilation))
    outlines = options.lowering.unsupported is Unsupported.OUTLINE
    for _ in range(_ROUNDS):
        # No report is written for a failed attempt.
        attempt = replace(trace, reporter=None, investigate=investigate, stages=[*trace.stages], imported=None)
        try:
            run_pipeline(pipeline, module, attempt, run, options.printing)
        except (StageFailed, CrashedError) as error:
            assert attempt.imported is not None  # or there would have been no stage to fail
            again = _outlined(attempt.imported, error.causes, fallback, outlines)
            replace_contents(module, again or attempt.imported.clone())
            run = _runner(module, compilation, prober)
            if again is None:
                break
            pipeline = pipeline.without_passes(*VERIFIERS)
        else:
            trace.stages, trace.imported = attempt.stages, attempt.imported
            return
    run_pipeline(pipeline, module, trace, run, options.printing)  # and report why it fails


def _outlined(
    imported: ir.Operation, causes: Sequence[Cause], fallback: Fallback, outlines: bool
) -> ir.Operation | None:
    """Return a copy of ``imported`` with unsupported operators outlined, or None if none can be outlined.

    Without ``unsupported="outline"``, only operators that the fallback supports are outlined.
    """
    by_call = {cause.call: cause for cause in causes}
    again = imported.clone()
    outlined = fallback.taking(outline(again, by_call.keys()), by_call)
    if not outlines and outlined.left:
        again = imported.clone()
        outlined = fallback.taking(outline(again, by_call.keys() - outlined.left), by_call)
    fallback.take(outlined)
    return again if outlined.modules or (outlines and outlined.left) else None


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
        for name, layer in defined.items():
            lowered = self._lowered(layer.module) if layer.module else None
            if lowered is None:
                left.add(layer.call)
            else:
                output_type, modules[name] = lowered
                operator_output_types.append(taken_by_fallback(output_type, causes[layer.call]))
        return Taken(modules, tuple(operator_output_types), frozenset(left))

    def take(self, outlined: Taken) -> None:
        """Link the lowered functions into their calls with `link`."""
        self.modules |= outlined.modules
        self.operator_output_types += outlined.operator_output_types

    def take_defined(self, defined: Mapping[str, StubDefinition], module: ir.Operation) -> None:
        """Lower functions from user rules that ``module`` calls. Raises the errors of `run_pipeline`."""
        if not defined:
            return
        places = places_of_calls(module)
        reason = f"no rule lowers it into {self.compilation.options.output_type.value}"
        for name, layer in defined.items():
            assert layer.module is not None
            assert layer.into is not None
            self.modules[name] = self._run(layer.module, layer.into, new_trace(self.compilation.options, ()))
            functions = tuple(places[name])
            self.operator_output_types.append(
                OperatorOutputType(layer.call, layer.into, len(functions), reason, functions)
            )

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
