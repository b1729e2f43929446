"""The plug-in project of examples/, with the wheel alone: its types, its lit tests, and its entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

for name in ("build", "hatchling", "lit", "pyright"):
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


def test_types_are_clean(site: Path, tmp_path: Path):
    package = site / "npu_plugin"
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"include": [str(package)], "extraPaths": [str(site)]}))
    checked = run("-m", "pyright", "-p", str(tmp_path), "--pythonpath", sys.executable, site=site, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout


def test_lit_tests_pass(site: Path, tmp_path: Path):
    lit = ("-m", "lit.main", "-v", str(PROJECT / "lit_tests"), "-D", f"exec_root={tmp_path}")
    ran = run(*lit, site=site, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_entry_points_are_found_without_an_import(site: Path, tmp_path: Path):
    command = ("-m", "fx_importer", "verify", "npu_plugin:build", "--output-type", "npu", "--lowerings", "npu")
    verified = run(*command, "--backend", "jit", "--json", "verdict.json", site=site, cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads((tmp_path / "verdict.json").read_text())["verdict"]["output_type"] == "npu"
