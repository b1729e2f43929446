"""``fx-importer verify``: the table, and the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fx_importer.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(ROOT)

    def verify(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fx-importer", "verify", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capfd.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return verify


def test_exit_code_is_the_verdict(verify, monkeypatch, tmp_path):
    monkeypatch.setenv("FX_IMPORTER_DUMP_DIR", str(tmp_path))
    eager = ("examples.mlp:build", "--backend", "eager", "--output-type", "raw")
    code, out, _ = verify(*eager)
    assert (code, out.split()[-1]) == (0, "passed")
    code, out, _ = verify(*eager, "--rtol", "0", "--atol", "-1", "--bisect")
    assert code == 1
    assert "mismatch" in out
    assert "the first value that differs once it is decomposed: linear = aten.linear.default" in out


def test_example_inputs_of_a_program_are_used(verify, tmp_path):
    program = torch.export.export(torch.nn.Tanh(), (torch.zeros(2),))
    torch.export.save(program, tmp_path / "tanh.pt2")
    assert verify(str(tmp_path / "tanh.pt2"), "--backend", "jit")[0] == 0
    program.example_inputs = None
    torch.export.save(program, tmp_path / "bare.pt2")
    code, _, err = verify(str(tmp_path / "bare.pt2"), "--backend", "jit")
    assert (code, "has no example inputs" in err) == (2, True)


def test_unknown_backend_is_reported_first(verify):
    code, _, err = verify("no.such:model", "--backend", "nobody")
    assert (code, "unknown backend 'nobody'" in err) == (2, True)
