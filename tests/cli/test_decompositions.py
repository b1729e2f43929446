"""``fx-importer decompositions``, and ``--keep``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fx_importer.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fx-importer", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capfd.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return run


def test_table_of_an_output_type(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    code, out, _ = run("decompositions", "--output-type", "tosa", "--keep", "aten.gelu", "--json", file)
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in out.splitlines()[2:]}
    assert code == 0
    assert rows["aten.gelu.default"] == ["kept", "named in keep"]
    assert rows["aten.stft.default"][0] == "decomposed"
    assert rows["aten.sort.default"][1].startswith("TOSA has no sort and no cumulative product")
    found = json.loads(file.read_text())
    assert found["output_type"] == "tosa"
    kept = next(each for each in found["table"] if each["operator"] == "aten.gelu.default")
    assert kept == {"operator": "aten.gelu.default", "decomposed by": None, "reason": "named in keep"}


def test_operators_of_a_model(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "counts.json"
    code, out, _ = run("decompositions", "examples.mlp:build", "--output-type", "linalg", "--json", file)
    assert code == 0
    assert "aten.linear.default 2 - torch's decompositions multiply by one" in " ".join(out.split())
    assert out.endswith("4 operators of 3 kinds before, 8 operators of 4 kinds after\n") or "kinds after" in out
    found = json.loads(file.read_text())
    assert found["before"]["aten.linear.default"] == 2
    assert "aten.linear.default" not in found["after"]


def test_kept_operator_is_not_decomposed(run: Run) -> None:
    code, out, _ = run("import", "examples.mlp:build", "--keep", "aten.linear", "-o", "-", "--output-type", "raw")
    assert (code, out.count("torch.aten.linear")) == (0, 2)


def test_unknown_operator(run: Run) -> None:
    for command in (("decompositions",), ("import", "examples.mlp:build", "-o", "-")):
        code, out, err = run(*command, "--keep", "aten.liner")
        assert (code, out) == (2, "")
        assert "no operator is named 'aten.liner'; is it aten.linear" in err
