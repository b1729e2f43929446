"""The virtual environment of the wild models: the project's packages, and those of the table, as they are pinned."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

INSTALL_SECONDS = 120
"""Limit for each requirement."""


def make_environment(folder: Path, requirements: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """Make a virtual environment on top of this one; return its Python, and why requirements could not be installed.

    Dependencies are not resolved, so that torch stays the project's. Installed requirements are not installed again.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        packages = next((folder / "lib").glob("python*/site-packages"))
        (packages / "project.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    frozen = subprocess.run([python, "-m", "pip", "freeze", "--local"], capture_output=True, text=True, check=True)
    present = {line.lower().replace("_", "-") for line in frozen.stdout.splitlines()}
    names = {line.partition("==")[0] for line in present}
    missing = [
        requirement
        for requirement in requirements
        if (wanted := requirement.lower().replace("_", "-")) not in present and ("==" in wanted or wanted not in names)
    ]
    if not missing or not _failure_of(python, missing):
        return python, {}
    failures: dict[str, str] = {}
    for requirement in missing:
        if failure := _failure_of(python, [requirement]):
            failures[requirement] = failure
            print(f"{requirement}: {failure}", file=sys.stderr)
    return python, failures


def _failure_of(python: Path, requirements: Sequence[str]) -> str:
    """Install requirements, and return why they could not be; empty if they were."""
    command = [python, "-m", "pip", "install", "--quiet", "--no-deps", *requirements]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS * len(requirements))
    except subprocess.TimeoutExpired:
        return f"pip took more than {INSTALL_SECONDS} s"
    return (done.stderr.strip().splitlines() or ["pip failed"])[-1] if done.returncode else ""
