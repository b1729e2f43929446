"""``fx-importer bench``: the table, what is not installed, the recommendation, and errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fx_importer.benchmarking import Measurement, recommendation
from fx_importer.benchmarking.measure import cells, remarks
from fx_importer.cli import main
from fx_importer.process import optional_packages

MODEL = """
import torch


def fine():
    return torch.nn.Linear(3, 4), (torch.randn(2, 3),)


def missing():
    return lambda x: torch.ops.aten._standard_gamma(x), (torch.ones(3),)


def wrong():
    return torch.nn.Linear(3, 4), (torch.randn(2, 5),)
"""


@pytest.fixture
def bench(monkeypatch, capfd, tmp_path):
    (tmp_path / "bench_models.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(optional_packages, "is_installed", lambda _: False)

    def bench(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fx-importer", "bench", *map(str, arguments), "--threads", "1"])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capfd.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return bench


def test_engines_are_measured_and_compared(bench, tmp_path):
    file = tmp_path / "bench.json"
    code, out, _ = bench(
        *("bench_models:fine", "--engines", "jit,iree,openvino", "--calls", "2"),
        *("--json", file, "--report", tmp_path / "seen.json"),
    )
    assert code == 0
    for each in ("linalg-on-tensors", "stablehlo", "torch"):
        assert json.loads((tmp_path / f"seen.{each}.json").read_text())["outcome"] == "lowered"
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert rows["eager"][5] == "1.00"
    assert float(rows["jit:linalg-on-tensors"][-1]) < 1e-5
    assert "iree:linalg-on-tensors, iree:stablehlo, iree:torch: the backend 'iree' needs" in out
    assert "pip install 'fx-importer[iree]'" in out
    assert "openvino: the backend 'openvino' needs openvino and onnx and onnxscript" in out
    assert "pip install 'fx-importer[rivals]'" in out
    found = {each["engine"]: each for each in json.loads(file.read_text())["engines"]}
    assert len(found["jit:linalg-on-tensors"]["calls"]) == 2
    assert found["jit:linalg-on-tensors"]["load"] > found["eager"]["load"]
    assert found["eager"]["call_memory"] > 2**20


def test_engine_that_fails_has_its_reason(bench):
    code, out, _ = bench("bench_models:missing", "--engines", "jit", "--calls", "1")
    assert code == 0
    assert "jit:linalg-on-tensors: " in out
    assert "_standard_gamma" in out
    assert "Recommended: eager PyTorch; no engine is faster." in out


def test_errors_are_sentences(bench):
    for arguments, sentence in (
        (("bench_models:wrong", "--engines", "jit"), "cannot be multiplied"),
        (
            ("bench_models:fine", "--engines", "jitt"),
            "'jitt': accepted are inductor, onnxruntime, openvino, jit, iree, xla",
        ),
        (("bench_models:fine", "--engines", "xla", "--output-type", "tosa"), "no engine of xla takes tosa"),
    ):
        code, _, err = bench(*arguments)
        assert (code, sentence in err) == (2, True), err


def measured(engine: str, milliseconds: float, **other) -> Measurement:
    return Measurement(engine, calls=(milliseconds / 1e3,), **other)


def test_recommendation():
    eager = measured("eager", 10)
    jit, xla = measured("jit:linalg-on-tensors", 5.1, load=2), measured("xla:stablehlo", 5, load=1)
    assert recommendation([eager, xla, jit]).startswith("Recommended: jit:linalg-on-tensors, 1.96x eager")
    assert recommendation([eager, xla, jit]).endswith("after 408 calls).")
    wrong = measured("iree:torch", 1, passed=False, difference=0.5)
    assert "xla" in recommendation([eager, wrong, xla])
    assert remarks([eager, wrong, Measurement("inductor", problem="no compiler")]) == [
        "inductor: no compiler",
        "iree:torch: its results are out of tolerance (!)",
    ]
    assert cells(wrong, eager)[5:] == ["10.00", "0", "0", "5e-01 !"]
    assert recommendation([eager, measured("xla:stablehlo", 9.9)]).startswith("Recommended: eager PyTorch; the fastest")
