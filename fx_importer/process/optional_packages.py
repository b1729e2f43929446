"""Checks for optional packages, with errors that name their extra."""

from __future__ import annotations

import importlib.util

from fx_importer.errors import NotInstalledError


def require(backend: str, extra: str, *packages: str) -> None:
    """Raise `NotInstalledError` unless all ``packages``, given by import name, are installed."""
    if missing := [name for name in packages if not is_installed(name)]:
        raise NotInstalledError(f"the backend '{backend}'", " and ".join(missing), extra)


def is_installed(name: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the parent package
        return False
