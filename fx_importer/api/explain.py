"""Prediction of the failures of a lowering."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.export import ExportedProgram

from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.compile_programs import advisor_for
from fx_importer.compiler.diagnose import expected_of
from fx_importer.compiler.driver import canonical_programs, checked_programs, import_canonical_with
from fx_importer.compiler.quantized_arithmetic import in_chosen_arithmetic
from fx_importer.diagnostics import progress
from fx_importer.diagnostics.explanation import Expected, Explanation
from fx_importer.errors import FxImporterError, UnsupportedNode
from fx_importer.frontend.example_inputs import check_inputs, warn_of_misspelt
from fx_importer.frontend.export import export_program
from fx_importer.fx_graph.assumptions import assumption_texts
from fx_importer.importing import FxImporter
from fx_importer.lowerings import LoweringRule, Lowerings, listed
from fx_importer.options import (
    Capture,
    DecompositionOptions,
    ExportOptions,
    ImportOptions,
    LoweringOptions,
    Mutation,
    Options,
    Weights,
)
from fx_importer.output_types import OutputType
from fx_importer.probing import Prober, ProbeStore
from fx_importer.targets import EXECUTABLE, target_for


def explain(
    f: torch.nn.Module | ExportedProgram | Callable[..., Any],
    *args: Any,
    output_types: Sequence[str | OutputType] = EXECUTABLE,
    dynamic_shapes: Any = None,
    strict: bool = False,
    capture: str | Capture = Capture.AUTO,
    mutation: str | Mutation = Mutation.ERROR,
    weights: str | Weights = Weights.INLINE,
    keep: Sequence[str | OpOverload | OpOverloadPacket] = (),
    extra: Mapping[Any, Callable[..., Any]] | None = None,
    lowerings: LoweringRule | Lowerings | str | Iterable[LoweringRule | Lowerings | str] = (),
    kwargs: Mapping[str, Any] | None = None,
    **model_kwargs: Any,
) -> Explanation:
    """Report the operators of ``f`` that each output type does not support, their call sites and suggestions.

    Each operator is lowered alone, in another process, and the result is stored in the user's cache directory, where
    the same call is looked up next time. Failures that only occur with several operators together are not found.

    Args:
        f: the model, a plain function, or an exported program.
        *args: example inputs.
        output_types: the output types to check.
        dynamic_shapes: as `lower` takes it.
        strict: as `lower` takes it.
        capture: as `lower` takes it. What it assumes is listed, without a warning.
        mutation: as `lower` takes it.
        weights: as `lower` takes it.
        keep: as `lower` takes it.
        extra: as `lower` takes it.
        lowerings: as `lower` takes it.
        kwargs: the model's keyword arguments, if their names are options here too.
        **model_kwargs: the model's keyword arguments.

    Raises:
        UsageError: for an invalid option or input.
        ExportError: if torch.export cannot capture ``f``.
    """
    inputs = {**model_kwargs, **(kwargs or {})}
    if not isinstance(f, ExportedProgram):
        check_inputs(f, args, inputs, options=inspect.signature(explain).parameters)
        warn_of_misspelt(f, model_kwargs, inspect.signature(explain).parameters)
    options = Options(
        export=ExportOptions(dynamic_shapes, strict, Capture.get(capture)),
        importing=ImportOptions(mutation=Mutation.get(mutation), weights=Weights.get(weights)),
        decompositions=DecompositionOptions(None, tuple(map(str, keep)), dict(extra or {})),
        lowering=LoweringOptions(lowerings=listed(lowerings)),
    )
    program = export_program(f, args, inputs, options.export)
    return explain_program(program, options, [OutputType.get(output_type) for output_type in output_types], models=(f,))


def explain_program(
    program: ExportedProgram,
    options: Options,
    output_types: Sequence[OutputType],
    store: ProbeStore | None = None,
    models: Sequence[Any] = (),
) -> Explanation:
    """Report what each of ``output_types`` does not support of ``program``, exported from ``models``.

    Raises `UsageError` for invalid options.
    """
    prober = Prober(lambda output_type: target_for(output_type).pipeline(options.lowering), store or ProbeStore())
    assumed = assumption_texts({"main": program})
    expected = {
        output: _expected(program, replace(options, output_type=output), prober, models, assumed)
        for output in output_types
    }
    return Explanation(expected, tuple(dict.fromkeys(assumed)))


def _expected(
    program: ExportedProgram, options: Options, prober: Prober, models: Sequence[Any], assumed: list[str]
) -> Expected:
    """Return what cannot be imported or lowered to the output type in ``program``, including invalid options.

    What its passes assume, such as a size for which alone the program works, is added to ``assumed``.
    """
    progress.enter(f"look into {options.output_type.value}")
    exported = {options.importing.func_name: program}
    try:
        chosen = in_chosen_arithmetic(exported, models, Compilation.of(options), partial(checked_programs, exported))
        canonical = canonical_programs(chosen.computed, chosen.compilation)
        assumed += assumption_texts(canonical)
        calls = {name: (source, (), {}) for name, source in exported.items()}
        advisor = advisor_for(calls, exported, FxImporter(), options)
        return expected_of(canonical, chosen.compilation, import_canonical_with(FxImporter()), prober, advisor=advisor)
    except FxImporterError as error:
        return Expected((UnsupportedNode("the program", str(error)),))
