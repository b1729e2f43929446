"""Complete reductions: the result is small, and its script reproduces the failure."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fx_importer import Lowered, StageFailed, UsageError, lower
from fx_importer.api.reduce import Job, in_a_process, job_of, reduce, request_of
from fx_importer.options import DecompositionOptions, Options
from fx_importer.output_types import OutputType
from fx_importer.process.worker import Child
from fx_importer.reduction import Kind, Reduction, Setting
from fx_importer.verification import Tolerance
from tests.reduction import faults, models

GELU = "aten.gelu.default"


@pytest.fixture(scope="module")
def reducer() -> Child:
    return Child("fx_importer.api.reduce:Reducer")


def job(path: Path, model, inputs, output_type="linalg", extra=None, stage=None, patience=60.0) -> Job:
    program = path / "program.pt2"
    torch.export.save(torch.export.export(model, inputs), program)
    options = Options(OutputType.get(output_type), decompositions=DecompositionOptions(extra=extra or {}))
    return Job(program, Setting(options, None, Tolerance()), stage, patience)


def test_unsupported_operator_among_100(tmp_path: Path, reducer: Child):
    out = tmp_path / "out"
    found: Reduction = reducer.ask("reducer", request_of(job(tmp_path, *models.with_gamma(), "stablehlo"), out))
    assert int(found.steps[0].before) > 100
    assert found.nodes <= 5
    assert found.confirmed
    assert found.symptom.kind is Kind.FAILED
    assert found.symptom.stage == "backend-types"
    ran = subprocess.run([sys.executable, found.script], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "nothing lowered 'torch.aten._standard_gamma'" in ran.stdout
    assert sorted(each.name for each in out.iterdir()) == ["reduced.mlir", "reduced.py", "report.md"]
    module = (out / "reduced.mlir").read_text()
    assert module.count(" = ") == 1
    assert "torch.aten._standard_gamma" in module
    replayed = subprocess.run(
        [sys.executable, "-m", "fx_importer.pipelines.replay", out / "reduced.mlir", found.pipeline],
        capture_output=True,
        text=True,
        check=False,
    )
    assert replayed.returncode == 1
    assert "torch.aten._standard_gamma" in replayed.stderr
    page = (out / "report.md").read_text()
    assert found.script.read_text().strip() in page
    assert module.strip() in page


def test_wrong_rule_is_reduced_to_its_operator(tmp_path: Path):
    model, inputs = models.with_gelu(3)
    lowered: Lowered = lower(model, *inputs, output_type="linalg", extra={torch.ops.aten.gelu.default: faults.wrong})
    found = reduce(lowered, tmp_path / "out", backend="jit")
    assert found.nodes == 1
    assert found.confirmed
    assert found.symptom.kind is Kind.MISMATCH
    assert found.symptom.stage == "on jit"
    assert found.module
    assert "linalg.generic" in found.module.read_text()
    assert not found.pipeline
    assert "float32[1x1]" in str(found)


class Halves(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(faults.half(x)) + 1


@pytest.mark.slow
def test_wrong_lowering_of_a_custom_operator(tmp_path: Path):
    lowered: Lowered = lower(Halves(), torch.ones(2, 3), output_type="tosa", lowerings=faults.wrong_half)
    divergence = lowered.bisect(backend="jit", isolate=False)
    assert divergence is not None
    assert divergence.script  # which was run, and mismatched
    found = reduce(lowered, tmp_path / "out", backend="jit")
    assert (found.nodes, found.confirmed) == (1, True)
    assert "lowerings=(tests.reduction.faults.wrong_half,)" in found.script.read_text()


def test_crash_is_reduced_to_its_operator(tmp_path: Path, reducer: Child):
    this = job(tmp_path, *models.with_gelu(2), extra={GELU: faults.abort}, stage="decompositions")
    found: Reduction = reducer.ask("reducer", request_of(this, tmp_path / "out"))
    assert found.nodes == 1
    assert found.confirmed
    assert found.module is None
    assert found.symptom.kind is Kind.CRASHED
    assert found.symptom.reasons == ("SIGABRT LLVM ERROR: # is not #",)


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x * 2)


@pytest.mark.slow
def test_timeout(tmp_path: Path, reducer: Child):
    this = job(tmp_path, Doubled(), (torch.ones(1),), extra={GELU: faults.loop}, patience=2.0)
    found: Reduction = reducer.ask("reducer", request_of(this, tmp_path / "out"))
    assert found.nodes == 1
    assert found.confirmed
    assert (found.symptom.kind, found.symptom.stage) == (Kind.TIMED_OUT, "decompositions")


class Resizing(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        half = x[:, : x.shape[1] // 2]
        return torch.nn.functional.gelu(torch.cat([half, half], 1).view(-1, 3)) + y


def test_sizes_weights_and_dynamic_shapes_are_reduced(tmp_path: Path, reducer: Child):
    rows = torch.export.Dim("rows")
    inputs = torch.ones(6, 4), torch.ones(3)
    exported = torch.export.export(Resizing(), inputs, dynamic_shapes=({0: 3 * rows}, None))
    torch.export.save(exported, tmp_path / "program.pt2")
    options = Options(OutputType.RAW, decompositions=DecompositionOptions(extra={GELU: faults.abort}))
    this = Job(tmp_path / "program.pt2", Setting(options, None, Tolerance()), None)
    found: Reduction = reducer.ask("reducer", request_of(this, tmp_path / "out"))
    text = found.script.read_text()
    assert "inputs = (torch.randn(1, 1),)" in text
    assert "dynamic_shapes" not in text
    assert found.confirmed


@pytest.mark.parametrize(
    "stage, message",
    [(None, "it does not fail here"), ("backend-types", "it does not fail here")],
)
def test_program_that_does_not_fail(tmp_path: Path, reducer: Child, stage: str | None, message: str):
    with pytest.raises(UsageError, match=message):
        reducer.ask("reducer", request_of(job(tmp_path, *models.with_gelu(1), stage=stage), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_another_failure(tmp_path: Path, reducer: Child):
    this = job(tmp_path, *models.with_gelu(1), extra={GELU: faults.abort}, stage="importing")
    with pytest.raises(UsageError, match="it failed in the stage 'importing', and here it fails otherwise"):
        reducer.ask("reducer", request_of(this, tmp_path / "out"))


def test_unstable_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "last").write_text("TypeError")
    monkeypatch.setenv("FX_IMPORTER_TEST_FILE", str(tmp_path / "last"))
    this = job(tmp_path, *models.with_gelu(1), extra={GELU: faults.other_each_time})
    message = "does not always fail in the same way.*'failed in decompositions: .*this.*', then '.*that"
    with pytest.raises(UsageError, match=message):
        in_a_process(this, tmp_path / "out")


def test_existing_directory(tmp_path: Path, reducer: Child):
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="is there already: name another directory, or remove it"):
        reducer.ask("reducer", request_of(job(tmp_path, *models.with_gelu(1)), tmp_path / "out"))


def test_rule_that_cannot_be_imported(tmp_path: Path):
    model, inputs = models.with_gelu(1)
    rule = eval("lambda x, approximate='none': x")
    lowered = lower(model, *inputs, output_type="raw", extra={GELU: rule})
    message = "another process reduces the program: '<lambda>' .*cannot be imported, and its source cannot be found"
    with pytest.raises(UsageError, match=message):
        reduce(lowered, tmp_path / "out", backend="eager")


def test_reduction_of_a_report(tmp_path: Path):
    model, inputs = models.with_gamma()
    with pytest.raises(StageFailed) as failure:
        lower(model, *inputs, output_type="stablehlo", keep=["aten.relu"], dump_dir=tmp_path)
    assert failure.value.report
    found = job_of(failure.value.report)
    assert (found.program.name, found.stage) == ("program.pt2", "backend-types")
    assert found.setting.options.output_type is OutputType.STABLEHLO
    assert found.setting.options.decompositions.keep == ("aten.relu",)


def test_directory_without_a_report(tmp_path: Path):
    with pytest.raises(UsageError, match="holds no report of a failure"):
        job_of(tmp_path)
