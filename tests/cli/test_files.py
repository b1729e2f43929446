"""`show` and `diff` of saved modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from fx_importer import lower
from fx_importer.cli import main


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["fx-importer", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit:
        main()
    out, err = capsys.readouterr()
    return int(exit.value.code or 0), out + err


def test_show_and_diff(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    model, x = torch.nn.Linear(4, 2), torch.ones(3, 4)
    a, b = tmp_path / "a.mlirbc", tmp_path / "b.mlir"
    lower(model, x, output_type="stablehlo").save(a)
    lower(torch.nn.Sequential(model, torch.nn.Tanh()), x, output_type="stablehlo", weights="external").save(b)

    code, shown = run(monkeypatch, capsys, "show", b)
    assert code == 0
    assert "main(input: float32[3, 4]) -> (output: float32[3, 2])" in shown
    assert "0.weight: tensor<2x4xf32>  outside of the module" in shown
    assert "contract: held" in shown

    code, shown = run(monkeypatch, capsys, "diff", a, b)
    assert code == 1
    assert "+1  stablehlo.tanh (0 -> 1)" in shown
    assert "- weight: tensor<2x4xf32>, 32 B" in shown
    assert "+ 0.weight: tensor<2x4xf32>, 32 B" in shown
    assert run(monkeypatch, capsys, "diff", a, a)[0] == 0


def test_files_of_others(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    other = tmp_path / "other.mlir"
    other.write_text("func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
    code, shown = run(monkeypatch, capsys, "show", other)
    assert code == 0
    assert "no manifest" in shown
    assert "f(tensor<2xf32>) -> tensor<2xf32>" in shown
    assert "contract" not in shown
    other.write_text("")
    code, shown = run(monkeypatch, capsys, "show", other)
    assert code == 2
    assert "is empty" in shown
    other.write_text("no module\n// fx_importer.manifest: {}\n")
    code, shown = run(monkeypatch, capsys, "show", other)
    assert code == 2
    assert "is not a module that MLIR reads" in shown
    other.write_text("module {}\n// fx_importer.manifest: {}\n")
    code, shown = run(monkeypatch, capsys, "show", other)
    assert code == 2
    assert "not a manifest of format" in shown
    assert run(monkeypatch, capsys, "show", tmp_path / "none.mlir")[0] == 2
