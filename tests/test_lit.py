"""Runs every lit test, each as a row of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

LIT_TESTS = Path(__file__).parents[1] / "lit_tests"
LIT = Path(sys.executable).with_name("lit")


def lit_files() -> list[str]:
    """Return the tests below ``lit_tests``."""
    found = (path for suffix in ("py", "mlir", "test") for path in LIT_TESTS.rglob(f"*.{suffix}"))
    tests = (path for path in found if path.name != "lit.cfg.py" and not {"Inputs", "Output"} & set(path.parts))
    return sorted(str(path.relative_to(LIT_TESTS)) for path in tests)


@pytest.mark.parametrize("name", lit_files())
def test_lit(name: str, tmp_path: Path):
    command = [str(LIT), "-v", "--param", f"exec_root={tmp_path}", str(LIT_TESTS / name)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    # An exit code of 0 would also mean that lit found nothing to do, or that the test calls itself unsupported.
    assert re.search(r"^ *(Passed|Expectedly Failed) *: *1 ", ran.stdout, re.MULTILINE), ran.stdout


def test_there_are_lit_tests():
    assert len(lit_files()) > 10
