"""``fx-importer matrix``: the table, the exit code, the files."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from fx_importer.cli import main
from fx_importer.process.optional_packages import is_installed

MODEL = """
import os
import torch


def fine():
    return torch.nn.Tanh(), (torch.zeros(2, 3),)


def missing():
    return lambda x, y: torch.ops.aten._standard_gamma(x) + torch.logcumsumexp(y, 0), (torch.ones(3), torch.ones(3))


def deadly():
    os.abort()
"""


@pytest.fixture
def matrix(monkeypatch, capfd, tmp_path):
    (tmp_path / "matrix_models.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)

    def matrix(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fx-importer", "matrix", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capfd.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return matrix


def if_installed(package: str) -> str:
    """Return the status of a backend that needs ``package``, which is missing beside some releases of torch."""
    return "passed" if is_installed(package) else "not installed"


def test_every_pair_has_a_cell(matrix, tmp_path):
    file = tmp_path / "matrix.json"
    kinds = ("--output-type", "linalg", "--output-type", "stablehlo")
    code, out, _ = matrix("matrix_models:fine", *kinds, "--json", file, "--report", tmp_path / "seen.json")
    assert code == 0
    expected = {
        "linalg-on-tensors": {"jit": "passed", "iree": if_installed("iree.compiler")},
        "stablehlo": {
            "jit": "passed",
            "stablehlo": "passed",
            "iree": if_installed("iree.compiler"),
            "xla": if_installed("jax"),
        },
    }
    for each in expected:
        seen = json.loads((tmp_path / f"seen.{each}.json").read_text())
        assert seen["output_type"] == each
        assert {check["backend"]: check["status"] for check in seen["checks"]} == expected[each]
    heading, _, linalg, stablehlo = out.splitlines()[:4]
    assert heading.split()[:4] == ["output", "type", "jit", "stablehlo"]
    assert linalg.split()[:2] == ["linalg-on-tensors", "passed"]
    assert stablehlo.split()[0] == "stablehlo"
    rows = {row["output_type"]: row["backends"] for row in json.loads(file.read_text())}
    for each, statuses in expected.items():
        assert {name: cell["status"] for name, cell in rows[each].items()} == statuses
    assert rows["stablehlo"]["stablehlo"]["error"] < 1e-6


def test_dynamic_program_runs_at_several_sizes(matrix, tmp_path):
    rows = torch.export.Dim("rows")
    program = torch.export.export(torch.nn.Tanh(), (torch.zeros(2, 3),), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "tanh.pt2")
    torch.save([((torch.ones(size, 3),), {}) for size in (1, 5)], tmp_path / "inputs.pt")
    code, out, _ = matrix("tanh.pt2", "--output-type", "linalg", "--inputs", tmp_path / "inputs.pt")
    assert (code, "passed" in out) == (0, True)


def test_unsupported_model(matrix):
    code, out, _ = matrix("matrix_models:missing", "--output-type", "tosa")
    assert code == 1
    assert "not lowered" in out
    assert "_standard_gamma" in out


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_crash_is_reported_in_its_cell(matrix):
    code, out, _ = matrix("matrix_models:deadly", "--output-type", "linalg")
    assert code == 1
    assert "crashed" in out
    assert "SIGABRT" in out


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"no", "is not what torch.save writes"),
        (b"", "is not what torch.save writes: BadZipFile"),
        ([torch.ones(2)], "does not hold a list of input sets"),
    ],
    ids=["bytes", "empty", "tensors"],
)
def test_invalid_inputs(matrix, tmp_path, content, sentence):
    file = tmp_path / "inputs.pt"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    code, _, err = matrix("matrix_models:fine", "--inputs", file)
    assert (code, sentence in err) == (2, True)


def test_invalid_model(matrix):
    code, _, err = matrix("no_such:model", "--output-type", "linalg")
    assert (code, "there is no module 'no_such'" in err) == (2, True)
