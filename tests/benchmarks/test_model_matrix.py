"""The model matrix: measures a cell, and rewrites the page between its markers."""

import json

import pytest

from benchmarks import model_matrix
from benchmarks.model_matrix import COLUMNS, DYNAMIC_COLUMNS, main, table, write_page


@pytest.mark.slow
def test_cell_is_measured(tmp_path, capsys):
    file = tmp_path / "cells.json"
    arguments = ["--models", "lstm", "--dynamic", "--backends", "jit", "--json", str(file)]
    assert main(arguments) == 0
    (cell,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert (cell["status"], cell["error"] < 1e-5) == ("passed", True)
    capsys.readouterr()
    assert main(arguments) == 0
    assert capsys.readouterr().out == ""


def test_page_is_rewritten_between_markers(tmp_path, monkeypatch):
    cell = {"model": "lstm", "output_type": "linalg-on-tensors", "backend": "jit", "dynamic": True}
    cell |= {"status": "passed", "error": 2e-7, "remark": ""}
    monkeypatch.setattr(model_matrix, "PAGE", tmp_path / "page.md")
    begin = "a\n<!-- begin static -->\nold\n<!-- end static -->\nb\n"
    model_matrix.PAGE.write_text(begin + begin.replace("static", "dynamic"))
    for _ in range(2):
        write_page([cell])
    text = model_matrix.PAGE.read_text()
    assert text.count("| lstm |  | 2e-07 |  |") == 1
    assert "old" not in text
    assert text.startswith("a\n<!-- begin static -->\n| model |")
    assert text.endswith("<!-- end dynamic -->\nb\n")


def test_page_has_its_columns():
    text = model_matrix.PAGE.read_text()
    for columns in (COLUMNS, DYNAMIC_COLUMNS):
        assert table([], columns).splitlines()[0] in text
