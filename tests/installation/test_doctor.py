"""Checks of ``fx-importer doctor``, in a working installation and with injected problems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from fx_importer.cli import main
from fx_importer.diagnostics.installed_packages.findings import Finding
from fx_importer.diagnostics.installed_packages.other_mlir_packages import neighbours, torch_mlir_here
from fx_importer.diagnostics.installed_packages.package_versions import Package, packages
from fx_importer.installation import checkup
from fx_importer.output_types import OutputType
from fx_importer.process.optional_packages import is_installed


def test_working_installation(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path):
    file = tmp_path / "doctor.json"
    monkeypatch.setattr(sys, "argv", ["fx-importer", "doctor", "--json", str(file)])
    with pytest.raises(SystemExit) as left:
        main()
    out = capfd.readouterr().out
    assert not left.value.code, out
    found = json.loads(file.read_text())
    assert found["works"]
    assert [each["name"] for each in found["output_types"]] == [each.value for each in OutputType]
    wrong = [each for part in ("output_types", "wheel") for each in found[part] if not each["works"]]
    assert wrong == []
    for name, extra in {"jit": None, "stablehlo": None, "tosa_reference": "tosa", "iree": "iree", "xla": "xla"}.items():
        (backend,) = (each for each in found["backends"] if each["name"] == name)
        there = extra is None or is_installed(
            {"tosa": "tosa_reference_model", "iree": "iree.compiler", "xla": "jax"}[extra]
        )
        assert (backend["works"], backend["extra"]) == (there, None if there else extra), backend
        assert any(line.split()[:1] == [name] and (" works" in line) is there for line in out.splitlines())


@pytest.mark.new_interpreter
@pytest.mark.parametrize(
    "content, sentence",
    [
        ({"torch_mlir.py": ""}, "stands before"),
        pytest.param({"torch_mlir/ir.py": "raise ImportError('not this one')"}, "not this one", marks=pytest.mark.slow),
    ],
    ids=["a module", "a folder"],
)
def test_another_torch_mlir_on_the_path(tmp_path: Path, content: dict[str, str], sentence: str):
    for name, text in content.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-m", "fx_importer", "doctor"]
    ran = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert sentence in ran.stdout
    assert "take it out of PYTHONPATH" in ran.stdout
    assert "no model can be lowered to raw, torch, linalg-on-tensors, tosa, stablehlo here" in ran.stdout


def test_wheel_is_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert torch_mlir_here().works
    (tmp_path / "torch_mlir").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not torch_mlir_here().works


def test_versions_are_those_of_the_constraints():
    found = {each.name: each for each in packages()}
    assert found["torch"].extra is None
    assert found["tosa-tools"].extra == "tosa"
    assert "pytest" not in found
    text = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()
    assert f"torch=={found['torch'].tested}" in text
    assert found["torch"].found == metadata.version("torch")


@pytest.mark.parametrize(
    "found, extra, verdict, advice",
    [
        ("2.13.0+cpu", None, "as tested", None),
        ("2.14.1", None, "tested with 2.13.0", None),
        ("2.12.0", None, "needs >=2.13,<3", "torch>=2.13,<3"),
        ("2.12.0", "xla", "needs >=2.13,<3", "torch>=2.13,<3"),
        (None, None, "not installed", "torch>=2.13,<3"),
        (None, "xla", "not installed", None),
    ],
)
def test_versions(found: str | None, extra: str | None, verdict: str, advice: str | None):
    package = Package("torch", found, "2.13.0", ">=2.13,<3", extra)
    assert (package.verdict, package.advice) == (verdict, advice)


def test_other_packages_with_an_mlir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "mlir").mkdir()
    (tmp_path / "mlir" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = (each for each in neighbours() if each.name == "mlir")
    assert (found.where, found.loaded) == (str(tmp_path / "mlir"), False)


def test_dump_directory_that_cannot_be_created(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FX_IMPORTER_DUMP_DIR", str(tmp_path / "file" / "dumps"))
    assert not checkup._dump_directory().works
    monkeypatch.setenv("FX_IMPORTER_DUMP_DIR", str(tmp_path / "new" / "dumps"))
    assert checkup._dump_directory().works
    assert not (tmp_path / "new").exists()


def test_missing_packages_have_advice():
    there, missing = Finding("jit", True), Finding("xla", False, "it is not installed", "xla")
    old = Package("numpy", "1.0", "2.1.3", ">=2.1")
    found = checkup.Checkup(
        "3.11", "here", (old,), there, (), (Finding("tosa", True),), (there, missing), there, (), there
    )
    assert found
    assert found.advice() == ["pip install 'numpy>=2.1'", "pip install 'fx-importer[xla]' brings the backend 'xla'"]
    assert "not installed" in str(found)


def test_compiler_of_native_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = checkup._compiler()
    assert (missing.verdict, missing.extra) == ("not installed", "native")
    (program := tmp_path / "zig").write_text("#!/bin/sh\necho 0.17.0\n")
    program.chmod(0o755)
    assert checkup._compiler() == Finding("zig", True, f"0.17.0, {program}")
