"""A compilation: its options, and everything resolved from them in advance."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.export import ExportedProgram

from fx_importer.decompositions import DecompositionTable, Overrides, decompose, decompose_calls
from fx_importer.engines import default_engine
from fx_importer.errors import UsageError
from fx_importer.fx_passes.fx_pass import FxContext
from fx_importer.fx_passes.sizes.numbers_to_tensors import with_number_results
from fx_importer.importing.handlers.higher_order import Handler
from fx_importer.lowerings import EMITTERS, Lowerings, handlers_for, layers
from fx_importer.options import ImportOptions, Options, Quantized, Weights
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline
from fx_importer.quantization import integer_lowerings
from fx_importer.quantization.functional_form import functional
from fx_importer.targets import EXECUTABLE, Target, target_for

Call = tuple[Any, Sequence[Any], Mapping[str, Any]]
"""A model and its example inputs. An exported program needs no inputs."""

Programs = Mapping[str, ExportedProgram]
"""Programs by the names of their functions."""


@dataclass(frozen=True)
class Exported:
    """Exported programs, by the names of their functions."""

    given: Programs
    """As torch.export captured them, or as the user passed them: what `verify` compares with."""
    computed: Programs
    """The same in the form whose numbers the module has: with operators on integers for ``quantized="integer"``."""
    compilation: Compilation
    """The compilation of ``computed``, in which ``quantized="auto"`` is resolved if a program is quantized."""
    chosen: bool = False
    """Whether ``quantized="auto"`` chose integers."""
    warning: str = ""
    """What to tell the user about the choice, if anything."""

    @property
    def integers(self) -> Programs:
        """The computed programs if they are others than the given ones."""
        return {} if all(self.computed[name] is value for name, value in self.given.items()) else self.computed


@dataclass(frozen=True)
class Compilation:
    """Context of the steps of a compilation."""

    options: Options
    target: Target
    pipeline: Pipeline
    """The stages after the import."""
    rules: tuple[Lowerings, ...]
    """The rules for operators, in order of precedence: the user's, and those of integer operators."""
    handlers: Mapping[Any, Handler]
    """How the importer handles operators with rules."""
    importing: ImportOptions
    """Import options, limited to the capabilities of the output type."""

    @classmethod
    def of(cls, options: Options) -> Compilation:
        """Resolve ``options``.

        Raises:
            UsageError: for options that are invalid, or that contradict each other or the output type.
        """
        Overrides.of(options.decompositions.keep, options.decompositions.extra)  # raises before any work
        lowering = options.lowering
        integer = options.export.quantized is Quantized.INTEGER
        rules = (*layers(lowering.lowerings), *((integer_lowerings(options.output_type.root),) if integer else ()))
        _check_fallback(options)
        if integer:
            _check_integer(options)
        target = target_for(options.output_type)
        handlers = handlers_for(
            rules,
            options.output_type,
            lowering.fallback,
            refuses=lowering.pipeline is None and options.output_type.pipeline is None,
        )
        return cls(options, target, target.pipeline(lowering), rules, handlers, _importing(options, target))

    def fx_context(self, exported: Programs, remark: Callable[[str], None] = lambda remark: None) -> FxContext:
        """Return the context of FX passes, which leave the graphs of ``exported`` as they are."""

        def decomposed(program: ExportedProgram) -> ExportedProgram:
            result = decompose(program, self.table(program), remark)
            return result if self.target.scalars else with_number_results(result, program)

        def without_calls(program: ExportedProgram, operators: Collection[Any]) -> ExportedProgram:
            table = self.table(program)
            return decompose_calls(
                program, {operator: table[operator] for operator in operators if operator in table}, remark
            )

        options = replace(self.options, importing=self.importing)
        dtypes = self.target.dtypes_for(options.lowering)
        return FxContext(self.target, options, dtypes, decomposed, without_calls, functional, remark, exported)

    def table(self, program: ExportedProgram | None = None) -> DecompositionTable:
        """Return the decompositions of the output type, and of the library operators that ``program`` calls.

        Raises:
            UsageError: for a table, or changes to it, that are invalid.
        """
        return self.target.table(self.options, self.rules, program)

    def narrowing_floats(self) -> Compilation:
        """Return the compilation with ``narrow_floats``."""
        lowering = replace(self.options.lowering, narrow_floats=True)
        options = replace(self.options, lowering=lowering)
        return replace(self, options=options, pipeline=self.target.pipeline(lowering))

    def pipeline_of(self, output_type: OutputType) -> Pipeline:
        """Return the pipeline of an output type with these options; ``options.pipeline`` is for the chosen one."""
        if output_type is self.options.output_type:
            return self.pipeline
        return target_for(output_type).pipeline(replace(self.options.lowering, pipeline=None))


def _importing(options: Options, target: Target) -> ImportOptions:
    """Return the import options, without symbolic shapes if the output type cannot hold them.

    Raises `UsageError` for assertions that the output type cannot hold: leaving them out silently would be wrong.
    """
    importing = options.importing
    if importing.runtime_asserts and not target.assertions:
        kind = options.output_type.value
        raise UsageError(f"runtime_asserts: {kind} has no assertions; raw, torch and linalg-on-tensors have them")
    return importing if target.symbolic_shapes else replace(importing, symbolic_shapes=False)


def _check_integer(options: Options) -> None:
    """Raise `UsageError` unless a program in integers can be lowered with ``options``."""
    if options.output_type.root not in EMITTERS:
        able = ", ".join(emitter.value for emitter in EMITTERS)
        raise UsageError(f"quantized='integer' is for {able}, and not for {options.output_type.value}")
    if options.importing.weights is not Weights.INLINE:
        raise UsageError(
            f"quantized='integer' computes biases, multipliers and shifts from the weights, which "
            f"weights='{options.importing.weights.value}' leaves out of the module: pass weights='inline'"
        )


def _check_fallback(options: Options) -> None:
    """Raise `UsageError` unless the output types of the fallback, and the one they help, can be mixed."""
    fallback, able = options.lowering.fallback, ", ".join(output_type.value for output_type in EXECUTABLE)
    mixed = (*fallback, options.output_type) if fallback else ()
    if wrong := [output_type.value for output_type in mixed if default_engine(output_type) is None]:
        raise UsageError(f"fallback: parts of a module can be of {able}, and not of {', '.join(wrong)}")
    if options.output_type in fallback:
        raise UsageError(f"fallback: {options.output_type.value} is what is asked for, and cannot be its own fallback")
