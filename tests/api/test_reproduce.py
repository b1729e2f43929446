"""Reports of failed lowerings: they reproduce the failure in another process, later, and in parallel."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from fx_importer import CrashedError, StageFailed, UsageError, lower, lower_mlir_module
from fx_importer.api.reproduce import reproduce
from fx_importer.cli import main
from fx_importer.compiler import driver
from fx_importer.compiler.compilation import Compilation
from fx_importer.diagnostics.options_text import options_from_text, options_to_text
from fx_importer.fx_passes.fx_pass import FxPass
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.options import (
    Contract,
    ExportOptions,
    LoweringOptions,
    Options,
    RunOptions,
    TosaTarget,
)
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, Stage
from fx_importer.pipelines.python_passes import imported_step
from fx_importer.targets import Target, target_for

ROOT = Path(__file__).parents[2]
X = torch.ones(2, 3)


@pytest.fixture(autouse=True)
def dump(tmp_path, monkeypatch) -> Path:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("FX_IMPORTER_DUMP_DIR", str(tmp_path / "dump"))
    return tmp_path / "dump"


class Mlp(torch.nn.Module):
    def __init__(self, hidden: int = 4) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x))


class Gamma(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._standard_gamma(self.layer(x))


@pytest.fixture
def inject(monkeypatch):
    """Add a stage that runs a step of `tests.pipelines.faults` to lowerings, but not to those of single operators."""

    def add(name: str) -> None:
        plain = Target.pipeline
        fault = Stage("faulty", "", (imported_step(f"tests.pipelines.faults:{name}"),))

        def pipeline(self: Target, options: LoweringOptions) -> Pipeline:
            given = plain(self, options)
            return Pipeline(given.name, (*given.stages[:1], fault, *given.stages[1:]))

        def plain_pipeline(self: Compilation, output_type: OutputType) -> Pipeline:
            return plain(target_for(output_type), self.options.lowering)

        monkeypatch.setattr(Target, "pipeline", pipeline)
        monkeypatch.setattr(Compilation, "pipeline_of", plain_pipeline)

    return add


def run_moved(report: Path, tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Move the report to another directory and run it in another process."""
    moved = report.rename(tmp_path / "moved")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "fx_importer", "reproduce", str(moved), *options]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


CRASHES = {
    "abort": ({}, "SIGABRT"),
    "segfault": ({}, "SIGSEGV"),
    "loop": ({"time_limit": 1.5}, "time limit of 1.5 s"),
    "hog": ({"memory_limit": 400 * 2**20}, "memory limit of 400 MiB"),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=[pytest.mark.new_interpreter, pytest.mark.slow] if each == "hog" else ())
        for each in CRASHES
    ],
)
def test_report_of_a_crash_crashes_again(name, inject, dump, tmp_path):
    limits, how = CRASHES[name]
    inject(name)
    with pytest.raises(CrashedError) as caught:
        lower(Mlp(), X, output_type="linalg", isolate=True, **limits)
    error = caught.value
    assert (error.stage, error.signal or error.limit) == ("faulty", how)
    assert error.pass_name == f"fx-importer-call{{tests.pipelines.faults:{name}}}"
    assert error.report is not None
    assert error.report.parent == dump
    assert str(error).endswith(f"reproducer in {error.report}")
    files = ["before.mlir", "before.mlirbc", "command.sh", "program.pt2", "report.json", "report.md"]
    assert sorted(path.name for path in error.report.iterdir()) == files
    ladder = json.loads((error.report / "report.json").read_text())["stages"]
    assert [(each["name"], each["outcome"]) for each in ladder[3:7]] == [
        ("importing", "passed"),
        ("torch-backend", "passed"),
        ("faulty", "failed"),
        ("control-flow", "not reached"),
    ]
    again = run_moved(error.report, tmp_path, "--trust")
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.startswith(f"It fails in the same way:\nstage 'faulty': {how}")


@pytest.mark.parametrize("isolate", [False, True], ids=["here", "isolated"])
def test_report_reproduces_a_failure(isolate, tmp_path):
    with pytest.raises(StageFailed) as caught:
        lower(Gamma(), X, output_type="tosa", isolate=isolate)
    report = caught.value.report
    assert report is not None
    assert not [path.name for path in report.iterdir() if str(report) in path.read_text(errors="ignore")]
    ran = subprocess.run(
        [report / "command.sh"],
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "torch.aten._standard_gamma" in ran.stderr
    again = run_moved(report, tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "stage 'backend-types': diagnostics\n  error: nothing lowered 'torch.aten._standard_gamma'" in again.stdout


def test_isolated_failures_equal_in_process_failures():
    failures = []
    for isolate in (False, True):
        with pytest.raises(StageFailed) as caught:
            lower(Gamma(), X, output_type="stablehlo", isolate=isolate)
        failures.append(caught.value)
    here, there = failures
    assert there.stage == here.stage
    assert there.diagnostics == here.diagnostics
    assert here.diagnostics[0].where is not None
    assert str(there).replace(str(there.report), "") == str(here).replace(str(here.report), "")


def test_another_failure_or_none_is_reported(monkeypatch, capsys, inject):
    inject("raise_value_error")
    with pytest.raises(StageFailed) as caught:
        lower(Mlp(), X, output_type="linalg", isolate=True)
    report = caught.value.report
    assert report is not None
    assert reproduce(report, trust=True).same
    facts = json.loads((report / "report.json").read_text())
    facts["versions"]["torch"] = "1.0"

    def outcome(pipeline: str) -> tuple[int, str]:
        (report / "report.json").write_text(json.dumps(facts | {"pipeline": pipeline}))
        monkeypatch.setattr(sys, "argv", ["fx-importer", "reproduce", str(report), "--trust"])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), capsys.readouterr().out
        raise AssertionError

    code, output = outcome("builtin.module(symbol-dce)")
    assert code == 1
    assert output.startswith(
        "It does not fail any more. Reported was:\nstage 'faulty': PassError\n  the pass 'raise_value_error' ("
    )
    assert f"torch was 1.0, and is {version('torch')} here" in output
    code, output = outcome("builtin.module(fx-importer-call{tests.pipelines.faults:abort})")
    assert code == 1
    assert "It fails in another way." in output
    assert "and now it is:\nstage 'faulty': SIGABRT" in output


def test_not_a_report(tmp_path):
    with pytest.raises(UsageError, match="holds no report of a failure"):
        reproduce(tmp_path)
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(UsageError, match="is not a report of a failure: it lacks failure, options"):
        reproduce(tmp_path)


def test_report_of_a_stage_before_the_passes(monkeypatch):
    def fail(*_arguments, **_keywords):
        raise IndexError("a defect of canonicalization")

    with monkeypatch.context() as patch:
        patch.setattr(driver, "CANONICAL", (FxPass("faulty", fail),))
        with pytest.raises(StageFailed) as caught:
            lower(Mlp(), X, output_type="tosa", contract="warn")
        report = caught.value.report
        assert report is not None
        assert sorted(path.name for path in report.iterdir()) == [
            "command.sh",
            "program.pt2",
            "report.json",
            "report.md",
        ]
        assert "a defect of canonicalization" in (report / "report.md").read_text()
        assert (
            (report / "command.sh")
            .read_text()
            .splitlines()[-1]
            .endswith("exec fx-importer import program.pt2 --output-type tosa --contract warn -o out.mlirbc")
        )
        assert reproduce(report).same
    assert reproduce(report).now is None


def test_report_size_is_bounded(tmp_path):
    big = Gamma(hidden=6_000_000)
    with pytest.raises(StageFailed) as caught:
        lower(big, X, output_type="linalg")
    report = caught.value.report
    assert report is not None
    assert sum(path.stat().st_size for path in report.iterdir()) < 500_000
    page = (report / "report.md").read_text()
    assert "with zeros for its weights and example inputs (96,000,024 bytes)" in page
    assert "without the data of its weights (96,000,000 bytes)" in page
    program = torch.export.load(report / "program.pt2")
    assert {name: each.shape for name, each in program.state_dict.items()} == {
        name: each.shape for name, each in big.state_dict().items()
    }
    assert reproduce(report).same


def fail_in_a_process(number: int) -> tuple[int, str]:
    torch.set_num_threads(1)
    try:
        lower(Gamma(number + 1), X, output_type="linalg")
    except StageFailed as error:
        return number, str(error.report)
    raise AssertionError


@pytest.mark.slow  # eight processes that import torch
def test_parallel_reports_do_not_collide(dump):
    with ProcessPoolExecutor(8, multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(fail_in_a_process, range(8)))
    assert len({report for _, report in found}) == 8
    assert sorted(map(str, dump.iterdir())) == sorted(report for _, report in found)
    for number, report in found:
        assert f"x{number + 1}xf32" in (Path(report) / "before.mlir").read_text()
        assert (Path(report) / "report.md").read_text().startswith("# The stage `")


def test_dumps_of_stages(tmp_path, monkeypatch):
    monkeypatch.delenv("FX_IMPORTER_DUMP_DIR")
    wanted = "^(decompositions|importing|stablehlo|remove-identities)$"
    lower(
        Mlp(),
        X,
        output_type="stablehlo",
        dump_ir=wanted,
        dump_dir=tmp_path / "ir",
    )
    (directory,) = (tmp_path / "ir").iterdir()
    assert sorted(path.name for path in directory.iterdir()) == [
        "02-decompositions.after.main.fx.txt",
        "03-fx_passes.08-remove-identities.after.main.fx.txt",
        "03-fx_passes.08-remove-identities.before.main.fx.txt",
        "04-importing.after.mlir",
        "07-stablehlo.after.mlir",
        "07-stablehlo.before.mlir",
        "stages.json",
    ]
    assert "torch.aten.relu" in (directory / "07-stablehlo.before.mlir").read_text()
    assert "stablehlo.maximum" in (directory / "07-stablehlo.after.mlir").read_text()
    stages = json.loads((directory / "stages.json").read_text())
    assert [each["name"] for each in stages][:3] == ["frontend", "decompositions", "fx_passes"]
    assert all(each["outcome"] == "passed" and each["seconds"] > 0 for each in stages)
    with pytest.raises(UsageError, match="dump_ir needs a directory"):
        lower(Mlp(), X, output_type="stablehlo", dump_ir="x")


def test_dumps_of_failed_stages(tmp_path):
    with pytest.raises(StageFailed):
        lower(Gamma(), X, output_type="linalg", dump_ir="backend-types", dump_dir=tmp_path, isolate=True)
    (directory,) = tmp_path.glob("fx-importer-ir-*")
    assert sorted(path.name for path in directory.iterdir()) == ["08-backend-types.before.mlir", "stages.json"]
    assert json.loads((directory / "stages.json").read_text())[-1]["outcome"] == "failed"
    assert list(tmp_path.glob("fx-importer-backend-types-failed-*"))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"time_limit": 1}, "time_limit=1 is for a process that can be ended: pass isolate=True too"),
        ({"memory_limit": 1}, "memory_limit=1 is for a process"),
        ({"isolate": True, "time_limit": 0}, "a limit must be positive"),
        ({"dump_ir": "("}, r"dump_ir='\(' is not a regular expression"),
    ],
)
def test_invalid_options(given, message):
    with pytest.raises(UsageError, match=message):
        lower(Mlp(), X, **given)


def test_options_round_trip():
    options = Options(
        OutputType.TOSA,
        export=ExportOptions(strict=True),
        lowering=LoweringOptions(
            ("aten.relu",), False, Contract.WARN, narrow_integers=True, tosa_target=TosaTarget(level="none")
        ),
        running=RunOptions(True, 2.5, 10**9),
    )
    values = json.loads(json.dumps(options_to_text(options)))
    assert options_from_text(values) == options
    assert options_to_text(Options()) == {"output_type": "raw"}


def test_existing_modules():
    load_dialects(context := new_context())
    kind = "!torch.vtensor<[2],f32>"
    text = f"func.func @main(%x: {kind}) -> {kind} {{ %0 = torch.aten.relu %x : {kind} -> {kind} return %0 : {kind} }}"
    module = ir.Module.parse(text, context)
    lower_mlir_module(False, "tosa", module, running=RunOptions(isolate=True))
    assert "tosa.clamp" in str(module)


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    with pytest.raises(StageFailed) as caught:
        lower(Gamma(), X, output_type="linalg", dump_dir=folder)
    assert caught.value.report is not None
    return caught.value.report


def link_elsewhere(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / f"elsewhere-{name}")
    (folder / name).symlink_to(folder.parent / f"elsewhere-{name}")


def edit(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        facts = json.loads((folder / "report.json").read_text())
        (folder / "report.json").write_text(json.dumps(facts | changes))

    return change


def without_module(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "before.mlirbc").unlink()
        edit(**changes)(folder)

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (edit(pipeline="builtin.module(fx-importer-call{untrusted:run})"), "open files: untrusted:run. To run them"),
        (edit(pipeline="builtin.module(cse,snapshot-op-locations{filename=ran})"), "open files: snapshot-op-locations"),
        (edit(pipeline="builtin.module(func.func(gpu-module-to-binary{toolkit=.}))"), "open files: gpu-module-to-"),
        (edit(pipeline="builtin.module(torch-shape-refinement-pipeline{extra-library=/etc/hosts})"), "extra-library"),
        (edit(pipeline="builtin.module(cse{x=(},gpu-module-to-binary{y=)})"), "open files: cse{x="),
        (edit(pipeline=3), "a value is of another type"),
        (edit(options={"lowerings": ["untrusted:run"]}), "calls functions of Python: untrusted:run. To run them"),
        (edit(options={"output_type": []}), "output"),
        (edit(options={"isolate": True, "time_limit": "x"}), "options that are valid here"),
        (edit(failure=[]), "a value is of another type"),
        (edit(failure={"stage": 1, "kind": "", "messages": []}), "a value is of another type"),
        (without_module(programs={"main": "../program.pt2"}), "is outside of the report's directory"),
        (without_module(programs={"main": "/program.pt2"}), "is outside of the report's directory"),
        (without_module(programs={"main": "a\0b"}), "is outside of the report's directory"),
        (lambda folder: link_elsewhere(folder, "before.mlirbc"), "before.mlirbc' is outside of the report's directory"),
        (lambda folder: link_elsewhere(folder, "report.json"), "report.json' is outside of the report's directory"),
        (lambda folder: (folder / "before.mlirbc").write_bytes(b"ML\xefR\x0d\xff\xff"), "not a module that MLIR reads"),
    ],
)
def test_report_of_a_stranger(report, tmp_path, monkeypatch, change, sentence):
    """Nothing runs, and nothing outside is read or written, because a report says so."""
    folder = shutil.copytree(report, tmp_path / "given")
    ran = tmp_path / "ran"
    (tmp_path / "untrusted.py").write_text(f"open({str(ran)!r}, 'w').close()")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    change(folder)
    with pytest.raises(UsageError, match=re.escape(sentence)):
        reproduce(folder)
    assert not ran.exists()
    assert "untrusted" not in sys.modules


def test_directories_of_a_report_are_not_written(report, tmp_path):
    folder = shutil.copytree(report, tmp_path / "given")
    facts = json.loads((folder / "report.json").read_text())
    edit(options=facts["options"] | {"dump_dir": str(tmp_path / "written"), "dump_ir": ".", "cache": True})(folder)
    assert reproduce(folder).same
    assert not (tmp_path / "written").exists()
