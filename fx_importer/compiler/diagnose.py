"""Why a lowering fails: the operators that the output type refuses, found by lowering each alone."""

from __future__ import annotations

from dataclasses import replace

from fx_importer.diagnostics.causes import Cause
from fx_importer.diagnostics.trace import Investigator
from fx_importer.mlir.bindings import ir
from fx_importer.options import Options
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline
from fx_importer.probing import Prober, Store, causes_in
from fx_importer.targets import target_for


def investigator(options: Options) -> Investigator:
    """Return what finds the operators that a lowering with ``options`` fails for."""

    def investigate(imported: ir.Operation) -> tuple[Cause, ...]:
        return causes_of(imported, options, prober_for(options))

    return investigate


def prober_for(options: Options, store: Store | None = None) -> Prober:
    """Return what lowers small modules with ``options`` to any output type; by its own pipeline to any other."""
    others = replace(options.lowering, pipeline=None)

    def pipeline(output_type: OutputType) -> Pipeline:
        chosen = options.lowering if output_type is options.output_type else others
        return target_for(output_type).pipeline(chosen)

    return Prober(pipeline, store)


def causes_of(imported: ir.Operation, options: Options, prober: Prober) -> tuple[Cause, ...]:
    """Return what of a module, as it was imported, the output type refuses."""
    target = target_for(options.output_type)
    kept = {str(operator) for operator in target.decompositions.keys() - target.table(options, None).keys()}
    return tuple(causes_in(imported, options.output_type, prober, kept))
