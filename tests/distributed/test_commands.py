"""Plans and meshes on the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fx_importer import load
from fx_importer.cli import main
from fx_importer.cli.option_arguments import mesh_text
from fx_importer.cli.plan_loading import plan_text
from fx_importer.errors import UsageError
from tests.distributed.test_on_devices import needs_xla

PLANS = "tests.distributed.plans"


def test_where_plans_come_from(tmp_path: Path):
    file = tmp_path / "plan.json"
    file.write_text('{"0.*": {"tp": 0}}')
    assert plan_text(str(file), "dp=2,tp=4") == '{"0.*": {"tp": 0}}'
    assert plan_text(f"{PLANS}:TABLE", "tp=4") == '{"0.*": {"tp": 0}, "2.weight": {"tp": 1}}'
    of_module = '{"0.weight": {"tp": 0}, "0.bias": {"tp": 0}, "2.weight": {"tp": 1}, "2.bias": {}}'
    assert plan_text(f"{PLANS}:parallelized", "tp=4") == of_module


@pytest.mark.parametrize(
    "spec, mesh, sentence",
    [
        ("missing.json", "tp=4", "the plan 'missing.json' cannot be read"),
        (f"{PLANS}:TABLE", None, "pass it too, --mesh"),
        (f"{PLANS}:TABLE", "x=4", "names tp, which the mesh does not have"),
        (f"{PLANS}:NO_PLAN", "tp=4", "plan=3 is not a plan"),
        (f"{PLANS}:TABEL", "tp=4", "did you mean 'TABLE'"),
        ("plan", "tp=4", "names no plan: PLAN is a JSON file"),
    ],
)
def test_what_is_no_plan(spec: str, mesh: str | None, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        plan_text(spec, mesh)


def test_devices_of_the_mesh():
    assert mesh_text(None, 8) == "devices=8"
    assert mesh_text("dp=2,tp=4", 8) == "dp=2,tp=4"
    with pytest.raises(UsageError, match="--devices 4: the mesh dp=2,tp=4 has 8"):
        mesh_text("dp=2,tp=4", 4)


OPTIONS = ("--output-type", "stablehlo", "--weights", "args", "--mesh", "dp=2,tp=4", "--plan", f"{PLANS}:TABLE")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["fx-importer", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        assert not left.value.code
        return capfd.readouterr().out

    return run


@needs_xla
def test_verify(run: Callable[..., str]):
    assert "passed" in run("verify", f"{PLANS}:model", *OPTIONS, "--backend", "xla")


def test_import_and_show(run: Callable[..., str], tmp_path: Path):
    file = str(tmp_path / "model.mlir")
    run("import", f"{PLANS}:model", "-o", file, *OPTIONS)
    assert load(file).options.importing.mesh == "dp=2,tp=4"
    assert "mesh: dp=2,tp=4, divided by a partitioner" in run("show", file)
