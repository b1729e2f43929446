"""The wheel and the source distribution: their files, their metadata, and the command line of the wheel alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

for name in ("build", "check_wheel_contents", "hatchling", "twine"):
    pytest.importorskip(name, reason="of the extra 'dev'")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> Path:
    """A directory with the source distribution of this tree, and the wheel that is built from it."""
    built = tmp_path_factory.mktemp("dist")
    run("-m", "build", "--no-isolation", "--outdir", str(built), str(ROOT))
    return built


@pytest.fixture(scope="module")
def unpacked(distributions, tmp_path_factory) -> Path:
    """A directory with the contents of the wheel."""
    (wheel,) = distributions.glob("*.whl")
    unpacked = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    return unpacked


def run(*arguments: str, cwd: Path = ROOT) -> str:
    ran = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


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


def test_an_index_takes_them(distributions):
    (wheel,), (source,) = distributions.glob("*.whl"), distributions.glob("*.tar.gz")
    run("-m", "twine", "check", "--strict", str(wheel), str(source))
    assert "OK" in run("-m", "check_wheel_contents", str(wheel))


def test_files_of_the_source_distribution(distributions):
    (source,) = distributions.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {Path(*Path(each).parts[1:]) for each in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not in a git repository")
    missing = {Path(each) for each in tracked.stdout.splitlines()} - names
    assert {each.parts[0] for each in missing} <= {".ci"}


@pytest.mark.slow
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
