"""The wheel: its files, and the command line of it alone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="the build backend, of the extra 'dev'")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    """A directory with the contents of the wheel that this source tree builds."""
    built = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(built / "unpacked")
    return built / "unpacked"


def files_of(package: Path) -> set[Path]:
    found = {path.relative_to(package) for path in package.rglob("*") if path.is_file()}
    return {path for path in found if "__pycache__" not in path.parts}


def test_files_of_the_wheel(unpacked):
    built = files_of(unpacked / "fx_importer")
    assert built == files_of(ROOT / "fx_importer")
    assert {Path("py.typed"), Path("diagnostics/explorer/assets/explorer.js")} <= built
    (information,) = unpacked.glob("*.dist-info")
    assert (information / "extra_metadata" / "constraints.txt").exists()  # which `doctor` reads
    assert "fx-importer = fx_importer.cli:main" in (information / "entry_points.txt").read_text()
    assert "Description-Content-Type: text/markdown" in (information / "METADATA").read_text()


@pytest.mark.new_interpreter
def test_the_wheel_alone_lowers_a_model(unpacked, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),)\n"
    )
    output = tmp_path / "linear.mlir"
    run = (
        "import sys, fx_importer\n"
        f"assert fx_importer.__file__.startswith({str(unpacked)!r}), fx_importer.__file__\n"
        f"sys.argv = ['fx-importer', 'import', 'mine:make', '--output-type', 'tosa', '-o', {str(output)!r}]\n"
        "from fx_importer.cli import main\n"
        "main()\n"
    )
    environment = os.environ | {"PYTHONPATH": str(unpacked)}
    ran = subprocess.run(
        [sys.executable, "-c", run], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "tosa.matmul" in output.read_text()
