"""The built page: it comes from the sources in `explorer/`, and names what is in it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "explorer"
ASSETS = files("fx_importer.diagnostics.explorer").joinpath("assets")


def test_built_from_these_sources():
    names = ["build.mjs", "package-lock.json", *(f"src/{each.name}" for each in (SOURCES / "src").iterdir())]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\n".encode() + (SOURCES / name).read_bytes())
    assert ASSETS.joinpath("sources.sha256").read_text() == f"{digest.hexdigest()}\n", "run 'make explorer'"


def test_licenses_name_what_is_bundled():
    lock = json.loads((SOURCES / "package-lock.json").read_text())["packages"]
    licenses = ASSETS.joinpath("LICENSES.txt").read_text()
    for name in json.loads((SOURCES / "package.json").read_text())["dependencies"]:
        assert f"{name} {lock[f'node_modules/{name}']['version']} (" in licenses


def test_build_is_up_to_date():
    """Type-check and build again, where Node.js and the packages of the lock file are installed."""
    if not (SOURCES / "node_modules" / "esbuild").exists() or shutil.which("node") is None:
        pytest.skip("needs Node.js and `npm ci` in explorer/, as .ci/run does")
    for command in (["node", "node_modules/typescript/bin/tsc"], ["node", "build.mjs", "--check"]):
        done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
