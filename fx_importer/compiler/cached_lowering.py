"""Lowering through the cache: the result of an earlier one, or a new result that is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fx_importer.compiler.caching import CacheEntry, place_of
from fx_importer.compiler.compilation import Compilation, Exported
from fx_importer.compiler.restored import restored
from fx_importer.compiler.stages import admit
from fx_importer.diagnostics.remarks import Deviation, WeightsRead
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import FxImporterError
from fx_importer.importing import FxImporter
from fx_importer.results.lowered import Lowered
from fx_importer.results.lowered_record import weights_read

LowerExported = Callable[..., Lowered]
"""`fx_importer.compiler.driver.lower_exported`."""


def through_the_cache(
    exported: Exported,
    importer: FxImporter,
    compilation: Compilation,
    trace: Trace,
    lower: LowerExported,
    *,
    report: bool,
) -> Lowered:
    """Return the result from the cache, or lower the programs and cache the result if possible."""
    with trace.stage("cache") as record:
        place = place_of(exported.given, importer, compilation.options, record.remarks.append)
        entry = place.read(importer.module) if place else None
        if entry is not None:
            record.remarks += [*([WeightsRead(entry[1])] if entry[1] else []), f"taken from {place}"]
    if place is None:
        return lower(exported, importer, compilation, trace, report=report)
    if entry is None:
        return _lower_and_keep(place, exported, importer, compilation, trace, lower, report=report)

    return restored(exported.given, importer.module, entry[0], compilation.options, importer, trace)


def _lower_and_keep(
    place: CacheEntry,
    exported: Exported,
    importer: FxImporter,
    compilation: Compilation,
    trace: Trace,
    lower: LowerExported,
    *,
    report: bool,
) -> Lowered:
    """Lower programs with elided weights, cache the result, and link the weights into it."""
    # No report is written for a failed attempt, since it would lack the weights.
    attempt = replace(trace, reporter=None, investigate=None, stages=[*trace.stages])
    try:
        compiled = lower(exported, importer, compilation, attempt, report=False, elided=place.elided.numbers)
        with attempt.stage("keep") as record:
            reason = _not_cached(compiled)
            record.remarks.append(
                reason or place.write(compiled.module, compiled.manifest, weights_read(compiled.trace))
            )
            place.give_weights(compiled.module)
    except FxImporterError:
        whole = importer.fresh()
        admit(compilation.options.output_type, whole.module.context)
        return lower(exported, whole, compilation, trace, report=report)
    trace.stages = attempt.stages
    return replace(compiled, trace=trace)


def _not_cached(compiled: Lowered) -> str:
    """Return why a result is not cached, a remark of each such call; empty if it is cached."""
    if compiled.drawn:
        return "not cached: random numbers were drawn"
    remarks = (remark for stage in compiled.trace.stages for remark in stage.remarks)
    return "not cached: kept operators differ from eager" if any(isinstance(r, Deviation) for r in remarks) else ""
