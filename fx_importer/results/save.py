"""Output of lowered modules: MLIR with manifest and weights, portable artifacts, and source for IREE."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fx_importer.engines.iree.iree_parameters import with_parameters
from fx_importer.engines.xla.bundle import bundled_artifact, loader_text
from fx_importer.engines.xla.portable_artifact import Weights as ArtifactWeights
from fx_importer.engines.xla.portable_artifact import artifact_of
from fx_importer.errors import UsageError
from fx_importer.manifest import Manifest
from fx_importer.mlir.module_contents import with_module_paths
from fx_importer.mlir.module_io import ARTIFACT, SUFFIXES, holds_weights, manifest_path, save_module
from fx_importer.mlir.output_files import all_or_none, atomic_file, check_writable, save_bytes, save_text
from fx_importer.options import Weights
from fx_importer.targets import target_for
from fx_importer.weights import save_weights
from fx_importer.weights.matching import bytes_of

if TYPE_CHECKING:
    from fx_importer.results.lowered import Lowered

DEFAULT_VERSION = "week-12"
"""The StableHLO release for which artifacts are written."""


def save_lowered(
    lowered: Lowered,
    path: str | os.PathLike[str],
    weights: str | os.PathLike[str] | None = None,
    module_paths: bool = False,
    locations: bool = False,
) -> None:
    """Write the module in the format of the suffix, with its manifest inside; or next to it, if weights are outside.

    ``module_paths``: see `with_module_paths`; ``locations``: whether text has locations.

    Raises:
        UsageError: if a file cannot be written, or weights do not match the module. No new files are left
            behind then.
    """
    if module_paths and Path(path).suffix == ARTIFACT:
        raise UsageError("an artifact has the locations of the lowering: save module paths to a .mlir or .mlirbc file")
    if holds_weights(path, lowered.options.importing.weights) or not lowered.manifest.weights:
        if weights is not None:
            raise UsageError(
                "the weights are in the module: lower with weights='external' to have them elsewhere, and save a "
                ".mlir or .mlirbc file"
            )
        _save_module(lowered, path, module_paths, locations, lowered.manifest.to_json(indent=None))
        return
    manifest, beside = lowered.manifest, manifest_path(check_writable(path, SUFFIXES))
    check_writable(beside)
    with all_or_none(path, beside, *([] if weights is None else [weights])):
        if weights is not None:
            tensors = lowered.held(manifest.weights_by_name)
            manifest = save_weights(manifest, tensors, weights, beside.parent)
        _save_module(lowered, path, module_paths, locations)
        save_text(manifest.to_json(), beside)


def _save_module(
    lowered: Lowered, path: str | os.PathLike[str], module_paths: bool, locations: bool, manifest: str = ""
) -> None:
    if Path(path).suffix == ARTIFACT:
        save_portable_artifact(lowered, path, DEFAULT_VERSION, "inline")
    else:
        module = with_module_paths(lowered.module) if module_paths else lowered.module
        save_module(module, path, lowered.manifest.weights, manifest, locations)


def save_portable_artifact(
    lowered: Lowered, path: str | os.PathLike[str], version: str, weights: ArtifactWeights
) -> None:
    """Write StableHLO as a portable artifact for a ``version`` of it.

    Raises:
        UsageError: if the module is not StableHLO, the version does not exist, or the file cannot be written.
    """
    output_type = lowered.options.output_type
    if not target_for(output_type).portable_artifacts:
        kind = output_type.value
        raise UsageError(f"a portable artifact holds StableHLO, but the module is {kind}: lower to 'stablehlo'")
    check_writable(path)
    module = lowered.linked if weights == "inline" else lowered.module
    save_bytes(artifact_of(module, version, weights), path)


def save_bundle_of(lowered: Lowered, folder: str | os.PathLike[str], platform: str, weights: bool) -> None:
    """Write what a machine with jax and numpy alone needs to run the module: see `Lowered.save_bundle`.

    Raises:
        UsageError: if the module is not StableHLO with external weights, or a file cannot be written.
    """
    options = lowered.options
    if not target_for(options.output_type).portable_artifacts:
        raise UsageError(
            f"a bundle holds StableHLO, but the module is {options.output_type.value}: lower to 'stablehlo'"
        )
    if options.importing.weights is Weights.INLINE and lowered.manifest.constants:
        raise UsageError("a bundle has its weights in a file: lower with weights='external'")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    artifact, manifest = folder / f"model{ARTIFACT}", lowered.manifest
    for old in ("model.safetensors", "state.npz"):
        (folder / old).unlink(missing_ok=True)
    if weights and manifest.weights:
        manifest = save_weights(manifest, lowered.held(manifest.weights_by_name), folder / "model.safetensors", folder)
    if weights and manifest.state:
        state = {name: tensor for name, tensor in lowered.initial_state().items() if name in manifest.state}
        with atomic_file(folder / "state.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, **{name: bytes_of(tensor) for name, tensor in state.items()})
    save_bytes(bundled_artifact(lowered.module, platform, DEFAULT_VERSION), artifact)
    facts = json.loads(manifest.to_json()) | {"platform": platform}
    save_text(json.dumps(facts, indent=2) + "\n", manifest_path(artifact))
    save_text(loader_text(), folder / "stablehlo_loader.py")


def parameters_of(manifest: Manifest) -> dict[str, str]:
    """Return the names in the model of the weights that are resources outside of the module, by resource."""
    arguments = {argument.name for function in manifest.functions.values() for argument in function.arguments}
    return {key: weight.name for key, weight in manifest.weights.items() if key not in arguments}


def iree_source_of(lowered: Lowered, scope: str) -> str:
    """Return the module as text for ``iree-compile``, with weights as parameters of ``scope``.

    Raises:
        UsageError: unless the weights are external.
    """
    if lowered.options.importing.weights is not Weights.EXTERNAL:
        raise UsageError("the module does not name its weights: lower with weights='external'")
    names = {key: weight.name for key, weight in lowered.manifest.weights.items()}
    return with_parameters(lowered.module, names, scope)
