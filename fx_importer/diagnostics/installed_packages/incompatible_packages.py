"""The sentence for a failing import, where a required package is missing or of a version that does not fit."""

from __future__ import annotations

from fx_importer.diagnostics.installed_packages.other_mlir_packages import torch_mlir_here
from fx_importer.diagnostics.installed_packages.package_versions import DISTRIBUTION, packages
from fx_importer.errors import MisfitError


def explained(error: ImportError) -> ImportError:
    """Return the error that names what does not fit, if ``error`` is of torch or torch-mlir; else ``error`` itself."""
    if (error.name or "").partition(".")[0] not in ("torch", "torch_mlir"):
        return error
    unfit = [package for package in packages() if package.extra is None and package.advice]
    if unfit:
        met = "; ".join(
            f"{package.name}{package.accepted} is needed, and {package.found or 'none'} is installed"
            for package in unfit
        )
        wanted = " ".join(repr(package.advice) for package in unfit)
        return MisfitError(f"{DISTRIBUTION} cannot be used with these packages: {met}. pip install {wanted}")
    if not (wheel := torch_mlir_here()).works:
        return MisfitError(f"{DISTRIBUTION} cannot import torch_mlir: {wheel.message}")
    return MisfitError(
        f"{DISTRIBUTION} cannot import what it needs of '{error.name}': {error}. The installed versions are accepted, "
        "so the installation may be incomplete, or the package is not yet ready for them: see fx-importer doctor, and "
        "docs/versions.md for what was tested"
    )
