"""The recipe "Add an engine" of CONTRIBUTING.md, in a copy of the package: every command knows the new engine."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from fx_importer import UsageError, engines, lower
from fx_importer.engines import all_engines, engine_table
from fx_importer.engines.jit.engine import JIT_ENGINE

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "fx_importer"
FILE = re.compile(r"^```python (?P<path>fx_importer/\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = "engine_table.py"

COMMANDS = """
import sys
import torch
from fx_importer.cli import main
from fx_importer.engines.engine_table import module_engines
from fx_importer.installation.smoke_test import Trial

for command in (
    "verify examples.mlp:build --backend counted",
    "bench examples.mlp:build --engines counted --threads 1",
    "pipeline examples.mlp:build --engine counted",
):
    sys.argv = ["fx-importer", *command.split()]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, command
print("doctor checks", *(engine.name for engine in module_engines()))
print(*Trial(print)(("run", "counted")))
compiled = torch.compile(lambda x: x + 1, backend="fx_importer", options={"engine": "counted"})
print("torch.compile:", compiled(torch.ones(2)).tolist())
"""

EXPECTED = (
    r"counted .* passed",
    r"counted:lin",
    r"^engine counted|counted:",
    r"doctor checks .*counted",
    r"Finding\(name='counted', works=True",
    r"torch.compile: \[2\.0, 2\.0\]",
)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the package, which links to the files here, and the engine of the recipe."""
    root = tmp_path_factory.mktemp("copied")
    engines = root / PACKAGE.name / "engines"
    engines.mkdir(parents=True)
    for path in (*PACKAGE.iterdir(), *(PACKAGE / "engines").iterdir()):
        if path.name not in ("__pycache__", "engines", TABLE):
            (root / path.relative_to(ROOT)).symlink_to(path)
    files = {match["path"]: match["text"] for match in FILE.finditer((ROOT / "CONTRIBUTING.md").read_text())}
    line = files.pop(f"fx_importer/engines/{TABLE}")
    for path, text in files.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
    (engines / "counted" / "__init__.py").touch()
    table = (PACKAGE / "engines" / TABLE).read_text()
    table = table.replace("\nif TYPE_CHECKING:", f"{line}\nif TYPE_CHECKING:", 1)
    (engines / TABLE).write_text(table.replace("BUILT_IN = (\n", "BUILT_IN = (\n    COUNTED_ENGINE,\n"))
    return root


@pytest.mark.slow
@pytest.mark.new_interpreter
def test_commands_know_a_new_engine(copied: Path) -> None:
    path = os.pathsep.join([str(copied), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "160"}
    command = [sys.executable, "-c", COMMANDS]
    ran = subprocess.run(command, cwd=copied, env=environment, text=True, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for pattern in EXPECTED:
        assert re.search(pattern, ran.stdout, re.MULTILINE), ran.stdout


def test_model_is_verified_on_a_new_engine(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "__path__", [*engines.__path__, str(copied / PACKAGE.name / "engines")])
    engine = importlib.import_module("fx_importer.engines.counted.engine").COUNTED_ENGINE
    monkeypatch.setattr(engine_table, "BUILT_IN", (*engine_table.BUILT_IN, engine))
    all_engines.cache_clear()
    try:
        x = torch.ones(2, 3)
        checks = (
            lower(torch.nn.Linear(3, 2), x, output_type="linalg").verify(backends=["counted"], isolate=False).checks
        )
        assert [check.backend for check in checks] == ["counted"]
    finally:
        all_engines.cache_clear()


class Point(EntryPoint):
    """An entry point of a distribution that is not installed."""

    def load(self) -> object:
        return {"jit": JIT_ENGINE, "again": type(JIT_ENGINE)("jit", JIT_ENGINE.create), "other": "not an engine"}[
            self.name
        ]


@pytest.mark.parametrize(
    "name, message",
    [("again", "two engines have the name 'jit': one is the entry point a:b"), ("other", "'other' .* not an Engine")],
)
def test_entry_points_are_checked(monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    all_engines.cache_clear()
    monkeypatch.setattr(engine_table, "entry_points", lambda group: [Point(name, "a:b", group)])
    with pytest.raises(UsageError, match=message):
        all_engines()
    monkeypatch.setattr(engine_table, "entry_points", lambda group: [Point("jit", "a:b", group)])
    assert list(all_engines()) == [engine.name for engine in engine_table.BUILT_IN]
    all_engines.cache_clear()
