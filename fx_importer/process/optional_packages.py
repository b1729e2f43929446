"""Imports of optional packages, with errors that name their extra."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from types import ModuleType

from fx_importer.errors import NotInstalledError

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "tosa_reference": ("tosa", "tosa_reference_model"),
    "iree": ("iree", "iree.compiler", "iree.runtime"),
    "xla": ("xla", "jax", "jaxlib"),
}
"""The extra of each backend that has one, and its packages by import name."""


def check_installed(backend: str) -> None:
    """Raise `NotInstalledError` unless all packages of the extra of ``backend``, if it has one, are installed."""
    if backend in EXTRAS:
        require(backend, *EXTRAS[backend])


def require(backend: str, extra: str, *packages: str) -> None:
    """Raise `NotInstalledError` unless all ``packages``, given by import name, are installed."""
    if missing := [name for name in packages if not is_installed(name)]:
        raise NotInstalledError(f"the backend '{backend}'", " and ".join(missing), extra)


def is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the parent package
        return False


def imported(backend: str, extra: str, package: str) -> ModuleType:
    """Return ``package``. Raises `NotInstalledError` if it is not installed."""
    require(backend, extra, package)
    return importlib.import_module(package)
