"""Runs every lit test, each as a row of its own.

Most are a script whose output FileCheck reads: they need no shell, and start in a fork; with ``-m slow``, lit runs them
too.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from filecheck.matcher import Matcher
from filecheck.options import parse_argv_options

from tests.fork_server import the_server
from tests.running import run_script

LIT_TESTS = Path(__file__).parents[1] / "lit_tests"
LIT = Path(sys.executable).with_name("lit")


def lit_files() -> list[str]:
    """Return the tests below ``lit_tests``."""
    found = (path for suffix in ("py", "mlir", "test") for path in LIT_TESTS.rglob(f"*.{suffix}"))
    tests = (path for path in found if path.name != "lit.cfg.py" and not {"Inputs", "Output"} & set(path.parts))
    return sorted(str(path.relative_to(LIT_TESTS)) for path in tests)


def options_of_a_script(name: str) -> list[str] | None:
    """Return FileCheck's options where it reads what the script prints, and that is all; None of other tests."""
    text = (LIT_TESTS / name).read_text()
    lines = re.findall(r"\b(?:RUN|XFAIL|REQUIRES|UNSUPPORTED):(.*)", text)
    plain = re.fullmatch(r" %PYTHON %s \| FileCheck %s((?: --[\w-]+)*)", lines[0].rstrip())
    return plain[1].split() if plain and len(lines) == 1 else None


SCRIPTS = {name: options for name in lit_files() if (options := options_of_a_script(name)) is not None}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str, tmp_path: Path):
    ran = run_script(LIT_TESTS / name, tmp_path, {})
    assert ran.returncode == 0, ran.stderr
    (tmp_path / "printed").write_text(ran.stdout)
    options = ["filecheck", str(LIT_TESTS / name), "--input-file", str(tmp_path / "printed"), *SCRIPTS[name]]
    assert Matcher.from_opts(parse_argv_options(options)).run() == 0, ran.stdout  # what does not match is printed


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SCRIPTS else ()) for n in lit_files()])
def test_lit(name: str, tmp_path: Path):
    # The scripts run in forks above: here, as everywhere, in interpreters.
    python = sys.executable if name in SCRIPTS else the_server().path / "python"
    parameters = ["--param", f"exec_root={tmp_path}", "--param", f"python={python}"]
    command = [sys.executable, str(LIT), "-v", *parameters, str(LIT_TESTS / name)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    # An exit code of 0 would also mean that lit found nothing to do, or that the test calls itself unsupported.
    assert re.search(r"^ *(Passed|Expectedly Failed) *: *1 ", ran.stdout, re.MULTILINE), ran.stdout


def test_there_are_lit_tests():
    assert len(lit_files()) > 10
    assert SCRIPTS.keys() < set(lit_files())
