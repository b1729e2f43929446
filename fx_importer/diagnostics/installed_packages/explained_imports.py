"""Imports that explain why they fail, where they load torch when a function is first called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def imports_explained() -> Iterator[None]:
    """Raise `MisfitError` for an import in the body that fails because torch or torch-mlir does not fit."""
    try:
        yield
    except ImportError as error:
        from fx_importer.diagnostics.installed_packages.incompatible_packages import explained

        raise explained(error) from error
