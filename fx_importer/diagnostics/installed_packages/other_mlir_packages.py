"""Other packages that contain MLIR, installed or imported in this process; and packages that shadow ``torch_mlir``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from fx_importer.diagnostics.installed_packages.findings import Finding

WITH_MLIR = ("mlir", "iree.compiler", "jaxlib", "torch_xla", "triton", "tensorflow", "circt", "torch_tensorrt")
"""Import names of packages that link MLIR or contain its bindings."""


@dataclass(frozen=True)
class Neighbour:
    """A package that contains MLIR. Several of them are harmless, unless one is imported in place of another."""

    name: str
    where: str
    loaded: bool
    """Whether this process has imported it."""


def neighbours() -> tuple[Neighbour, ...]:
    """Return the packages with an MLIR of their own that are installed or already imported."""
    return tuple(_neighbours())


def _neighbours() -> Iterator[Neighbour]:
    for name in WITH_MLIR:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):  # from its parent package, or a module added by hand
            spec = None
        loaded = name in sys.modules
        if spec is not None or loaded:
            folders = [*(spec.submodule_search_locations or ())] if spec else []
            yield Neighbour(name, folders[0] if folders else (spec.origin if spec else None) or "", loaded)


def torch_mlir_here() -> Finding:
    """Return whether ``torch_mlir`` is the wheel's, with nothing on the path shadowing it."""
    name = "torch_mlir"
    try:
        installed = Path(str(metadata.distribution("torch-mlir").locate_file(name))).resolve()
    except metadata.PackageNotFoundError:
        return Finding(name, False, "the distribution torch-mlir is not installed")
    candidates = [Path(folder or ".", name) for folder in sys.path]
    there = [path.resolve() for path in candidates if path.is_dir() or path.with_suffix(".py").is_file()]
    before = there[: there.index(installed)] if installed in there else there
    if before:
        names = ", ".join(map(str, dict.fromkeys(before)))
        return Finding(name, False, f"{names} stands before {installed} on the path: take it out of PYTHONPATH")
    return Finding(name, True, str(installed))
