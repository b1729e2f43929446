"""`fx-importer explain` of a model that torch.export rejects."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fx_importer.cli import main

MODEL = """
import torch

class Branches(torch.nn.Module):
    def forward(self, x):
        y = x.sin()
        if y.sum() > 0:
            y = y * 2
        return y.cos()

def build():
    return Branches(), (torch.ones(3),)
"""


def test_graph_breaks_of_a_model_that_export_rejects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("branching_model.py").write_text(MODEL)
    monkeypatch.setattr(
        sys, "argv", ["fx-importer", "explain", "branching_model:build", "--capture", "export", "--json", "breaks.json"]
    )
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code
    out, err = capsys.readouterr()
    assert "import_function imports it as 2 functions of one module, with Python between them" in out
    assert "at " + str(tmp_path / "branching_model.py:7: if y.sum() > 0:") in out
    assert "torch.export cannot capture Branches" in err
    (graph_break,) = json.loads(Path("breaks.json").read_text())["graph_breaks"]
    assert (graph_break["after"], graph_break["before"]) == ("graph_0", "graph_1")
