"""The manifest of a lowered module."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.outline import OutlineOutcome
from fx_importer.importing import ImportResult
from fx_importer.manifest import NARROW, NARROW_FLOATS, Manifest, Weight
from fx_importer.mlir.resources import key_of, resources_in
from fx_importer.options import Weights


def manifest_of(imported: ImportResult, outcome: OutlineOutcome, compilation: Compilation) -> Manifest:
    """Return the manifest of the lowered module of ``imported``."""
    options = compilation.options
    manifest = Manifest(
        options.output_type.value,
        imported.signatures,
        imported.state,
        imported.constants,
        outcome.operator_stubs,
        outcome.fallback,
        _weights(imported, options.importing.weights),
        imported.mesh,
        imported.process_groups,
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
    if policy is not Weights.EXTERNAL:
        return imported.weights
    found: dict[str, Weight] = {}
    for key in dict.fromkeys(key_of(value) for _, _, value in resources_in(imported.module.operation)):
        name = key
        while name not in imported.weights and (shorter := re.sub(r"_\d+$", "", name)) != name:
            name = shorter
        if name in imported.weights:
            found[key] = imported.weights[name]
    order = {weight: number for number, weight in enumerate(imported.weights.values())}
    return dict(sorted(found.items(), key=lambda each: order[each[1]]))
