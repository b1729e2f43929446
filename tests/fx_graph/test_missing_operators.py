"""The package imports with a torch that lacks operators for which it has rules."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "fx_importer"

SCRIPT = """
import sys
import torch

GONE = set(sys.argv[1].split(","))

class Without:
    def __getattr__(self, name):
        if name in GONE:
            raise AttributeError(name)
        return getattr(torch.ops.aten, name)

from fx_importer.fx_graph import operators
operators.aten._operators = Without()  # torch itself needs most of them

import fx_importer
for name in fx_importer.__all__:
    getattr(fx_importer, name)
from fx_importer.decompositions import LINALG, STABLEHLO, TORCH, TOSA
for table in (TORCH, LINALG, TOSA, STABLEHLO):
    assert not any(isinstance(key, operators.MissingOperator) for key in table.lines)
model, x = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()), torch.ones(2, 3)
lowered = fx_importer.lower(model, x, output_type="linalg-on-tensors")
torch.testing.assert_close(lowered.run(x), model(x))
"""

REMOVED = {"qr", "cholesky"}
"""Gone since torch 2.14."""

NEEDED = set(re.findall(r"\w+", "view t permute addmm tanh mm add mul detach alias clone linear lift_fresh_copy copy_"))
"""Operators of the test's program, or used by torch while exporting it."""


def _operators_of_tables() -> list[str]:
    """Return the operators that key rules of the decomposition tables."""
    found: set[str] = set()
    for path in (PACKAGE / "decompositions").rglob("*.py"):
        for decorator in re.findall(r"^@decomposes\((.*?)\)$", path.read_text(), re.MULTILINE | re.DOTALL):
            found |= set(re.findall(r"\baten\.(\w+)", decorator))
    return sorted(found - NEEDED - REMOVED)


@pytest.mark.new_interpreter
@pytest.mark.parametrize(
    "gone",
    [pytest.param(REMOVED, marks=pytest.mark.slow), REMOVED | {*_operators_of_tables()}],
    ids=["2.14", "all"],
)
def test_missing_operators_are_skipped(gone: set[str]):
    command = [sys.executable, "-c", SCRIPT, ",".join(sorted(gone))]
    result = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent)
    assert result.returncode == 0, result.stderr
