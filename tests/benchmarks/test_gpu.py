"""`benchmarks.gpu` with a tiny model on the CPU: prepare, run, and the page."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import check, page, prepare
from benchmarks.gpu.run import file_as_module
from tests.engines.test_engine_table import needs_xla

NAMES = ("tiny_decode", "tiny_bert")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``run.py`` as it lies on the device, next to what was prepared."""
    options = ["--only", *NAMES, "--dtypes", "fp32", "--platform", "cpu", "--iree", "none"]
    monkeypatch.setattr(sys, "argv", ["prepare", str(tmp_path), *options])
    prepare.main()
    monkeypatch.syspath_prepend(tmp_path)
    yield file_as_module(tmp_path / "run.py")
    for name in ("models", "jax_models"):
        sys.modules.pop(name, None)


@pytest.mark.slow
@needs_xla
def test_a_tiny_model_on_the_cpu(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [run.measure(name, "fp32", "cpu", ("inductor", "iree"), rounds=1) | run.facts("cpu") for name in NAMES]
    programs = {row["model"]: set(row["programs"]) for row in rows}
    assert programs == {"tiny_decode": {"eager", "xla"}, "tiny_bert": {"eager", "xla", "jax"}}
    for row in rows:
        for program, one in row["programs"].items():
            assert one["error"] < 1e-6, (row["model"], program)
    failed = {"model": "unet", "dtype": "bf16", "failed": "the process ended with -11"}
    path, text = tmp_path / "rows.jsonl", tmp_path / "gpu.md"
    path.write_text("".join(json.dumps(each) + "\n" for each in [*rows, {"model": "unet", "began": 0}, failed]))
    text.write_text("# GPUs\n\nIntroduction.\n\n## H100, commit 1, 1 May\n\nOld.\n")
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["page", str(path), "--date", "2 May", "--page", str(text)])
        page.main()
    headings = [line for line in text.read_text().splitlines() if line.startswith("#")]
    assert headings[0] == "# GPUs"
    assert [heading.split(",")[0] for heading in headings[1:]] == ["## CPU", "## H100"]
    assert "* unet, bf16 failed: the process ended with -11" in text.read_text()
    assert "| tiny_decode, fp32 |" in text.read_text()


@pytest.mark.slow
@needs_xla
def test_checks_of_a_device_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, names = tmp_path / "checks.json", ["calls", "two_devices", "perceptron training"]
    monkeypatch.setattr(sys, "argv", ["check", "--device", "cpu", "--json", str(path), "--only", *names])
    assert check.main() == 0
    rows = json.loads(path.read_text())["rows"]
    assert {name: row["error"] < 1e-5 for name, row in rows.items()} == dict.fromkeys(names, True)
