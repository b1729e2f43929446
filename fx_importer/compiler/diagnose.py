"""Diagnosis of failed lowerings: the unsupported operators, found by lowering each alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from fx_importer.compiler.advice import Advisor
from fx_importer.compiler.compilation import Compilation, Programs
from fx_importer.diagnostics.causes import Cause, Diagnosis, IncompleteSearch
from fx_importer.diagnostics.explanation import Expected
from fx_importer.diagnostics.trace import Investigator
from fx_importer.errors import UnsupportedProgramError, not_imported
from fx_importer.mlir.bindings import ir
from fx_importer.options import Unsupported
from fx_importer.probing import Prober, ProbeStore, causes_in, expected

ImportCanonical = Callable[[Programs, Compilation], ir.Operation]
"""Imports canonical programs with the options of a compilation, and returns the module."""

SEARCH_SECONDS = 60
"""Time limit of the search for unsupported operators after a failure."""


def investigator(
    compilation: Compilation, advisor: Advisor | None = None, prober: Prober | None = None
) -> Investigator:
    """Return a function that finds the operators of an imported module that fail to lower.

    ``advisor`` tries what lowers the whole program instead. ``prober`` is used instead of a new one.
    """

    def investigate(imported: ir.Operation) -> Diagnosis:
        start = time.monotonic()
        existing = prober or (advisor.prober() if advisor else prober_for(compilation))
        try:
            causes = causes_of(imported, compilation, existing.with_pipelines(compilation.pipeline_of), SEARCH_SECONDS)
        except IncompleteSearch as stopped:
            return Diagnosis(stopped.causes, remark=str(stopped))
        return advised(causes, imported, advisor, SEARCH_SECONDS - (time.monotonic() - start))

    return investigate


def advised(causes: tuple[Cause, ...], imported: ir.Operation, advisor: Advisor | None, seconds: float) -> Diagnosis:
    """Return ``causes`` with the suggestions of ``advisor``, if there is one, tried in about ``seconds``."""
    if advisor is None:
        return Diagnosis(causes)
    suggestions = advisor.suggestions(causes, seconds, dynamic=_has_dynamic_inputs(imported))
    return Diagnosis(tuple(replace(cause, suggestions=suggestions) for cause in causes), suggestions)


def prober_for(compilation: Compilation, store: ProbeStore | None = None) -> Prober:
    """Return a prober that lowers small modules to any output type, with the options of ``compilation``."""
    return Prober(compilation.pipeline_of, store)


def causes_of(
    imported: ir.Operation, compilation: Compilation, prober: Prober, seconds: float = math.inf
) -> tuple[Cause, ...]:
    """Return the operators of an imported module that the output type does not support.

    Raises:
        IncompleteSearch: after ``seconds``, with the operators found so far.
    """
    target = compilation.target
    if target.narrows and not _has_wide_floats(imported):
        prober = prober.with_pipelines(compilation.narrowing_floats().pipeline_of)
    return tuple(causes_in(imported, target.output_type, prober, seconds))


def expected_of(
    canonical: Programs,
    compilation: Compilation,
    import_canonical: ImportCanonical,
    prober: Prober,
    seconds: float = math.inf,
    advisor: Advisor | None = None,
) -> Expected:
    """Return everything in canonical programs that cannot be imported, and the operators that would fail to lower.

    The remark says so if the search for operators took more than ``seconds``, and stopped.
    """

    remark = ""

    def causes(module: ir.Operation) -> tuple[Cause, ...]:
        nonlocal remark
        try:
            causes = causes_of(module, compilation, prober, seconds)
            return advised(causes, module, advisor if causes else None, SEARCH_SECONDS).causes
        except IncompleteSearch as stopped:
            remark = str(stopped)
            return stopped.causes

    return replace(expected(canonical, lambda programs: import_canonical(programs, compilation), causes), remark=remark)


def all_unsupported(
    error: UnsupportedProgramError,
    canonical: Programs,
    compilation: Compilation,
    import_canonical: ImportCanonical,
    advisor: Advisor | None = None,
) -> UnsupportedProgramError:
    """Return ``error`` with everything in the programs that cannot be imported or lowered."""
    headline = error.headline
    if compilation.options.lowering.unsupported is Unsupported.OUTLINE:
        headline = f"{headline.removesuffix(':')} (unsupported='outline' is for what can be imported):"
    if not any(node.node for node in error.unsupported_nodes):
        return UnsupportedProgramError(headline, error.unsupported_nodes)
    # Without outlined layers, unsupported operators are listed for each layer.
    inlined = replace(compilation, importing=replace(compilation.importing, outline_layers=False))
    unsupported = expected_of(canonical, inlined, import_canonical, prober_for(compilation), SEARCH_SECONDS, advisor)
    if headline == not_imported(len(error.unsupported_nodes)):
        headline = not_imported(len(unsupported.unsupported_nodes))
    return UnsupportedProgramError(headline, unsupported.unsupported_nodes, unsupported.causes, unsupported.remark)


def _has_dynamic_inputs(module: ir.Operation) -> bool:
    """Whether a function of ``module`` takes a tensor with a dynamic dimension: not all are data-dependent sizes."""
    functions = [op.operation for op in module.regions[0].blocks[0].operations]
    blocks = [block for function in functions if function.regions for block in list(function.regions[0].blocks)[:1]]
    return any("?" in str(argument.type) for block in blocks for argument in block.arguments)


def _has_wide_floats(module: ir.Operation) -> bool:
    """Return whether a function takes or returns float64. If none does, each operator alone may: it becomes float32."""
    functions = [op.operation for op in module.regions[0].blocks[0].operations]
    return any(
        "f64" in str(function.attributes["function_type"]) for function in functions if function.name == "func.func"
    )
