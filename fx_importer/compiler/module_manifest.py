"""The manifest of a lowered module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.outline import OutlineOutcome
from fx_importer.importing import ImportResult
from fx_importer.manifest import NARROW, NARROW_FLOATS, Manifest, Weight
from fx_importer.mlir.resources import key_of, resources_in
from fx_importer.options import Weights


def manifest_of(imported: ImportResult, outcome: OutlineOutcome, compilation: Compilation) -> Manifest:
    """Return the manifest of the lowered module of ``imported``."""
    options = compilation.options
    manifest = replace(
        imported.manifest,
        output_type=options.output_type.value,
        operator_stubs=outcome.operator_stubs,
        fallback=outcome.fallback,
        weights=_weights(imported, options.importing.weights),
    )
    if not compilation.target.narrows:
        return manifest
    integers = NARROW if options.lowering.narrow_integers else {}
    floats = NARROW_FLOATS if options.lowering.narrow_floats else {}
    return manifest.passing({**integers, **floats})


def _weights(imported: ImportResult, policy: Weights) -> Mapping[str, Weight]:
    """Return the weights outside the module. Of external ones, return those that the module still refers to.

    A stage in another process may have changed the type of a resource. MLIR then treats it as a new one, and appends a
    number to the name to make it unique.
    """
    weights = imported.manifest.weights
    if policy is not Weights.EXTERNAL:
        return weights
    weights_used: dict[str, Weight] = {}
    for key in dict.fromkeys(key_of(value) for _, _, value in resources_in(imported.module.operation)):
        name = key
        while name not in weights and (shorter := re.sub(r"_\d+$", "", name)) != name:
            name = shorter
        if name in weights:
            weights_used[key] = weights[name]
    order = {weight: number for number, weight in enumerate(weights.values())}
    return dict(sorted(weights_used.items(), key=lambda item: order[item[1]]))
