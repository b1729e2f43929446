"""Runs scripts as `python` would, each in a fork of a process that has imported torch and this package."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess


def run_script(script: Path, folder: Path, environment: Mapping[str, str]) -> CompletedProcess[str]:
    """Run ``script`` in ``folder``, with these variables too, and return what it printed and its exit code."""
    command = [sys.executable, script]
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | dict(environment)
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


ROOT = Path(__file__).parents[1]
