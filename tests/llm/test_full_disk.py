"""`llm import` where files cannot grow: the folder is left as it was."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.llm.tiny_models import save_tiny_model, tokenizer


def limited(source: Path, target: Path, size: int | None) -> subprocess.CompletedProcess[str]:
    """Run ``llm import`` in a process whose files have at most ``size`` bytes."""
    program = (
        "import resource, signal, sys\n"
        "from fx_importer.errors import FxImporterError\n"
        "from fx_importer.llm import import_model\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "size = int(sys.argv[3])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))\n"
        "try:\n"
        "    import_model(sys.argv[1], sys.argv[2], context=24, batch=1, quantize='int8')\n"
        "except FxImporterError as error:\n"
        "    sys.exit(f'refused: {error}')\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(source), str(target)]
    limit = resource.RLIM_INFINITY if size is None else size
    return subprocess.run([*command, str(limit)], capture_output=True, text=True, check=False, timeout=300)


def listed(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("size", [100, 20_000])
@pytest.mark.parametrize("target", ["new", "old"])
def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, target: str, size: int):
    """No new folder, and an old one is unchanged."""
    save_tiny_model(tmp_path / "model", num_hidden_layers=1)
    tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "llm.json").write_text("{}")
    before = listed(tmp_path / "old")
    ran = limited(tmp_path / "model", tmp_path / target, size)
    assert ran.returncode == 1, ran.stderr
    assert "refused: " in ran.stderr
    assert "Traceback" not in ran.stderr
    assert listed(tmp_path / "old") == before
    assert {path.name for path in tmp_path.iterdir()} == {"model", "old"}
