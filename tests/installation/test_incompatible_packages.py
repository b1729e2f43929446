"""Imports with packages that do not fit: a sentence that names them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fx_importer.diagnostics.installed_packages.incompatible_packages import explained
from fx_importer.errors import MisfitError

USE = {
    "api": ("-c", "import fx_importer; fx_importer.lower(abs, 1)"),
    "command": ("-m", "fx_importer", "import", "math:sqrt", "-o", "-"),
}


def distribution(folder: Path, name: str, version: str, package: str) -> None:
    """Write an installed distribution whose package lacks everything."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").touch()
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.new_interpreter
@pytest.mark.parametrize("use", USE)
@pytest.mark.parametrize(
    "name, version, package", [("torch-mlir", "20221213.686", "torch_mlir"), ("torch", "2.11.0", "torch")]
)
def test_a_version_that_does_not_fit_is_named(name: str, version: str, package: str, use: str, tmp_path: Path) -> None:
    distribution(tmp_path, name, version, package)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": path}
    ran = subprocess.run([sys.executable, *USE[use]], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    last = ran.stderr.strip().splitlines()[-1]
    assert f"is needed, and {version} is installed. pip install '{name}" in last
    assert use == "api" or "Traceback" not in ran.stderr


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fx_importer.diagnostics.installed_packages.package_versions._version", lambda name: None)
    error = explained(ModuleNotFoundError("No module named 'torch_mlir'", name="torch_mlir"))
    assert isinstance(error, MisfitError)
    assert "torch-mlir>=20261001 is needed, and none is installed" in str(error)


def test_versions_that_fit_and_lack_a_name() -> None:
    error = explained(ImportError("cannot import name 'f' from 'torch._x'", name="torch._x"))
    assert "cannot import what it needs of 'torch._x': cannot import name 'f'" in str(error)
    assert "fx-importer doctor" in str(error)


def test_other_imports_keep_their_error() -> None:
    error = ModuleNotFoundError("No module named 'jax'", name="jax")
    assert explained(error) is error
