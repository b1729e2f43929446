"""The plug-in project of examples/, with the wheel alone: its types, its lit tests, and its entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

for name in ("build", "hatchling", "lit", "nanobind", "pyright"):
    pytest.importorskip(name, reason="of the extra 'dev' or 'test'")

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "npu_plugin"

pytestmark = [pytest.mark.slow, pytest.mark.new_interpreter]


def run(*arguments: str, site: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(site)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the contents of both wheels, as an installation has them."""
    made = tmp_path_factory.mktemp("site")
    for project in (ROOT, PROJECT):
        wheels = tmp_path_factory.mktemp("wheels")
        built = run(
            "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(project), site=made, cwd=wheels
        )
        assert built.returncode == 0, built.stdout + built.stderr
        (wheel,) = wheels.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(made)
    return made


WRONG = """
from torch_mlir import ir, passmanager
from torch_mlir.dialects import tosa


def use(op: ir.Operation, module: ir.Module, value: ir.Value) -> None:
    op.result_types
    op.operands[0].typ
    module.run()
    value.replace_all_uses_with(op)
    ir.Operation.create("tosa.add", result=[])
    passmanager.PassManager().run("builtin.module")
    tosa.AddOp(value)
    ir.RankedTensor
"""
"""Every line of the function is wrong."""


def check_types(path: Path, site: Path, folder: Path) -> dict[str, Any]:
    include = os.path.relpath(path, folder)  # pyright ignores absolute paths
    (folder / "pyrightconfig.json").write_text(json.dumps({"include": [include], "extraPaths": [str(site)]}))
    command = ("-m", "pyright", "-p", str(folder), "--pythonpath", sys.executable, "--outputjson")
    return json.loads(run(*command, site=site, cwd=folder).stdout)


def test_types_are_clean(site: Path, tmp_path: Path):
    checked = check_types(site / "npu_plugin", site, tmp_path)
    assert checked["summary"]["filesAnalyzed"] > 0
    assert checked["generalDiagnostics"] == []


def test_wrong_uses_of_the_bindings_are_type_errors(site: Path, tmp_path: Path):
    (tmp_path / "wrong.py").write_text(WRONG)
    found = check_types(tmp_path, site, tmp_path)["generalDiagnostics"]
    wrong = range(WRONG[: WRONG.index("    op.")].count("\n"), WRONG.count("\n"))
    assert {entry["range"]["start"]["line"] for entry in found if entry["severity"] == "error"} == {*wrong}, found


def test_stubs_are_those_of_the_installed_wheel(site: Path, tmp_path: Path):
    written = run("-m", "testing.binding_stubs", str(tmp_path), site=ROOT, cwd=ROOT)
    assert written.returncode == 0, written.stderr
    made, stored = (
        {file.relative_to(folder): file.read_text() for file in folder.rglob("*.pyi")}
        for folder in (tmp_path, ROOT / "torch_mlir-stubs")
    )
    assert made.keys()
    assert [name for name in stored if made.get(name) != stored[name]] == []


def test_lit_tests_pass(site: Path, tmp_path: Path):
    lit = ("-m", "lit.main", "-v", str(PROJECT / "lit_tests"), "-D", f"exec_root={tmp_path}")
    ran = run(*lit, site=site, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_entry_points_are_found_without_an_import(site: Path, tmp_path: Path):
    command = ("-m", "fx_importer", "verify", "npu_plugin:build", "--output-type", "npu", "--lowerings", "npu")
    verified = run(*command, "--backend", "jit", "--json", "verdict.json", site=site, cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads((tmp_path / "verdict.json").read_text())["verdict"]["output_type"] == "npu"
