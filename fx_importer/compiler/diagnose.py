"""Diagnosis of failed lowerings: the unsupported operators, found by lowering each alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from fx_importer.compiler.compilation import Compilation, Programs
from fx_importer.diagnostics.causes import Cause, IncompleteSearch
from fx_importer.diagnostics.explanation import Expected
from fx_importer.diagnostics.trace import Investigator
from fx_importer.errors import UnsupportedProgramError, not_imported
from fx_importer.mlir.bindings import ir
from fx_importer.options import Unsupported
from fx_importer.probing import Alternatives, Prober, ProbeStore, causes_in, expected
from fx_importer.targets import EXECUTABLE

ImportCanonical = Callable[[Programs, Compilation], ir.Operation]
"""Imports canonical programs with the options of a compilation, and returns the module."""

SEARCH_SECONDS = 60
"""Time limit of the search for unsupported operators after a failure."""


def investigator(compilation: Compilation) -> Investigator:
    """Return a function that finds the operators of an imported module that fail to lower."""
    return lambda imported: causes_of(imported, compilation, prober_for(compilation), SEARCH_SECONDS)


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
    kept = {str(operator) for operator in target.decompositions.keys() - compilation.table().decomposed}
    given, lowering = target.output_type, compilation.options.lowering
    alternatives = Alternatives(
        kept,
        [output_type for output_type in EXECUTABLE if output_type is not given],
        fallback=given in EXECUTABLE and not lowering.fallback,
        outline=given in EXECUTABLE and lowering.unsupported is not Unsupported.OUTLINE,
    )
    return tuple(causes_in(imported, given, prober, alternatives, seconds))


def expected_of(
    canonical: Programs,
    compilation: Compilation,
    import_canonical: ImportCanonical,
    prober: Prober,
    seconds: float = math.inf,
) -> Expected:
    """Return everything in canonical programs that cannot be imported, and the operators that would fail to lower.

    The remark says so if the search for operators took more than ``seconds``, and stopped.
    """

    remark = ""

    def causes(module: ir.Operation) -> tuple[Cause, ...]:
        nonlocal remark
        try:
            return causes_of(module, compilation, prober, seconds)
        except IncompleteSearch as stopped:
            remark = str(stopped)
            return stopped.causes

    return replace(expected(canonical, lambda programs: import_canonical(programs, compilation), causes), remark=remark)


def all_unsupported(
    error: UnsupportedProgramError, canonical: Programs, compilation: Compilation, import_canonical: ImportCanonical
) -> UnsupportedProgramError:
    """Return ``error`` with everything in the programs that cannot be imported or lowered."""
    headline = error.headline
    if compilation.options.lowering.unsupported is Unsupported.OUTLINE:
        headline = f"{headline.removesuffix(':')} (unsupported='outline' is for what can be imported):"
    if not any(node.node for node in error.unsupported_nodes):
        return UnsupportedProgramError(headline, error.unsupported_nodes)
    # Without outlined layers, unsupported operators are listed for each layer.
    inlined = replace(compilation, importing=replace(compilation.importing, outline_layers=False))
    found = expected_of(canonical, inlined, import_canonical, prober_for(compilation), SEARCH_SECONDS)
    if headline == not_imported(len(error.unsupported_nodes)):
        headline = not_imported(len(found.unsupported_nodes))
    return UnsupportedProgramError(headline, found.unsupported_nodes, found.causes, found.remark)


def _has_wide_floats(module: ir.Operation) -> bool:
    """Return whether a function takes or returns float64. If none does, each operator alone may: it becomes float32."""
    functions = [op.operation for op in module.regions[0].blocks[0].operations]
    return any(
        "f64" in str(function.attributes["function_type"]) for function in functions if function.name == "func.func"
    )
