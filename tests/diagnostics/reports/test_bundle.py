"""The report directory of a failed stage."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fx_importer.diagnostics.reports import Reporter, bundle, report_contents
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import StageFailed
from fx_importer.mlir.bindings import func_d, ir, new_context
from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pass, Stage, run_stage
from fx_importer.pipelines.stage import on_functions
from fx_importer.targets import pipeline_for

T = "!torch.vtensor<[2],f32>"
LINALG, TOSA, STABLEHLO = OutputType.LINALG_ON_TENSORS, OutputType.TOSA, OutputType.STABLEHLO
FILES = ["before.mlir", "before.mlirbc", "command.sh", "report.json", "report.md"]  # and of a program, program.pt2


@pytest.fixture(autouse=True)
def dump(tmp_path, monkeypatch) -> Path:
    """Direct reports to a directory that does not exist yet."""
    monkeypatch.setenv("FX_IMPORTER_DUMP_DIR", str(tmp_path / "dump" / "here"))
    return tmp_path / "dump" / "here"


def module(body: str, *, type: str = T, context: ir.Context | None = None) -> ir.Module:
    text = f"func.func @main(%x: {type}) -> {type} {{\n{body}\nreturn %r : {type}\n}}"
    return ir.Module.parse(text, context or new_context())


CUSTOM_OP = f'%r = torch.operator "torch.mylib.twice"(%x) : ({T}) -> {T} loc("model.py":2:1)'


def lower(into: OutputType, given: ir.Module) -> None:
    run(pipeline_for(into, LoweringOptions()).stages, given)


def run(stages: tuple[Stage, ...], given: ir.Module) -> Trace:
    trace = Trace(reporter=Reporter(), planned=tuple(stage.name for stage in stages))
    for stage in stages:
        with trace.stage(stage.name, given, pipeline=str(stage)):
            run_stage(stage, given)
    return trace


@contextmanager
def expect_report() -> Iterator[list[Path]]:
    """Expect a failure with a report; after the block, the yielded list holds its directory."""
    found: list[Path] = []
    with pytest.raises(StageFailed) as caught:
        yield found
    assert caught.value.report is not None
    assert f"reproducer in {caught.value.report}" in str(caught.value)
    found.append(caught.value.report)


def test_files_of_a_report(dump):
    with expect_report() as found:
        lower(LINALG, module(CUSTOM_OP))
    (directory,) = found
    assert directory.parent == dump
    assert directory.name.startswith("fx-importer-backend-types-failed-")
    assert sorted(path.name for path in directory.iterdir()) == FILES

    text = (directory / "before.mlir").read_text()
    assert 'torch.operator "torch.mylib.twice"' in text
    assert 'loc("model.py":2:1)' in text
    assert str(ir.Module.parse(text, new_context())) == str(
        ir.Module.parseFile(str(directory / "before.mlirbc"), new_context())
    )

    facts = json.loads((directory / "report.json").read_text())
    assert facts["stage"] == "backend-types"
    assert [(stage["name"], stage["outcome"]) for stage in facts["stages"]] == [
        ("torch-backend", "passed"),
        ("control-flow", "passed"),
        ("linalg", "passed"),
        ("backend-types", "failed"),
        ("loops", "not reached"),
        ("in-place", "not reached"),
        ("contract", "not reached"),
    ]
    assert facts["diagnostics"][0]["message"] == "nothing lowered 'torch.mylib.twice'"
    assert facts["diagnostics"][0]["where"] == "model.py:2"
    assert {"python", "platform", "fx-importer", "torch", "torch-mlir", "iree-base-compiler"} < set(facts["versions"])

    page = (directory / "report.md").read_text()
    assert "error: nothing lowered 'torch.mylib.twice'\n    at model.py:2" in page
    assert "| linalg | passed |" in page
    assert "| backend-types | **failed** |" in page
    assert "| loops | not reached |" in page
    assert facts["command"] in page
    assert facts["command"] in (directory / "command.sh").read_text()


I64 = "!torch.vtensor<[2],si64>"
POW = f"%r = torch.aten.pow.Tensor_Tensor %x, %x : {I64}, {I64} -> {I64}"
ERF = f"""
  %long = torch.constant.int 4
  %false = torch.constant.bool false
  %none = torch.constant.none
  %y = torch.aten.erf %x : {I64} -> {T}
  %r = torch.aten.to.dtype %y, %long, %false, %false, %none
    : {T}, !torch.int, !torch.bool, !torch.bool, !torch.none -> {I64}
"""
SORT_THEN_CUSTOM_OP = f"""
  %zero = torch.constant.int 0
  %false = torch.constant.bool false
  %v, %i = torch.aten.sort %x, %zero, %false : {T}, !torch.int, !torch.bool -> {T}, !torch.vtensor<[2],si64>
  %r = torch.operator "torch.mylib.twice"(%v) : ({T}) -> {T}
"""


@pytest.mark.slow_rows("^--backend-types-replay1$", "^--stablehlo-replay$", "^--backend-types-replay0$")
@pytest.mark.parametrize(
    "into, given, stage, tool",
    [
        (LINALG, lambda: module(POW, type=I64), "linalg", "torch-mlir-opt"),
        (LINALG, lambda: module(CUSTOM_OP), "backend-types", "torch-mlir-opt"),
        # These dialects have no name to be loaded by: here, the bytecode holds tm_tensor.
        (LINALG, lambda: module(SORT_THEN_CUSTOM_OP), "backend-types", "torch-mlir-opt"),
        (TOSA, lambda: module(POW, type=I64), "tosa", "torch-mlir-opt"),
        (TOSA, lambda: module(CUSTOM_OP), "backend-types", "replay"),
        (STABLEHLO, lambda: module(ERF, type=I64), "stablehlo", "replay"),
        (STABLEHLO, lambda: module(CUSTOM_OP), "backend-types", "replay"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_command_reproduces_the_failure(into, given, stage, tool):
    with expect_report() as found:
        lower(into, given())
    assert_repeats(found[0], stage, tool)


@pytest.mark.parametrize(
    "text, step, tool",
    [
        ("%y = tosa.rsqrt %x : (tensor<2xf64>) -> tensor<2xf64>", Pass("tosa-validate"), "replay"),
        ("%y = math.exp %x : tensor<2xf64>", on_functions("torch-finalizing-backend-type-conversion"), "replay"),
        ("", on_functions("torch-finalizing-backend-type-conversion"), "torch-mlir-opt"),
    ],
    ids=["a pass that torch-mlir-opt does not know", "a dialect that it does not know", "an odd name"],
)
def test_command_for_stages_of_the_user(text, step, tool):
    left_over = '%z = torch.operator "torch.mylib.make"() : () -> !torch.int'
    given = ir.Module.parse(f"func.func @f(%x: tensor<2xf64>) {{ {text} {left_over} return }}", new_context())
    stage = Stage("somebody's\n$(own)", "", (step,))
    with expect_report() as found:
        run((stage,), given)
    assert_repeats(found[0], stage.name, tool)


def assert_repeats(directory: Path, stage: str, tool: str) -> None:
    facts = json.loads((directory / "report.json").read_text())
    assert facts["stage"] == stage
    assert (".replay " if tool == "replay" else "torch-mlir-opt ") in facts["command"]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run([directory / "command.sh"], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stdout == ""
    # torch-mlir-opt lacks what this package adds to MLIR's diagnostics.
    messages = [each["message"] for each in facts["diagnostics"] if not each["message"].startswith("nothing lowered")]
    assert messages
    assert all(message.splitlines()[0] in ran.stderr for message in messages)


def with_weight(weight: np.ndarray) -> ir.Module:
    """Return a module that calls a custom op on ``weight``, which is a resource."""
    context = new_context()
    with context, ir.Location.unknown():
        shape = ir.RankedTensorType.get(weight.shape, ir.F32Type.get())
        type = ir.Type.parse(f"!torch.vtensor<{list(weight.shape)},f32>")
        value = ir.DenseResourceElementsAttr.get_from_buffer(weight, "layer.weight", shape)
        made = ir.Module.create()
        with ir.InsertionPoint(made.body):
            function = func_d.FuncOp("main", ir.FunctionType.get([], [type]))
        with ir.InsertionPoint(function.add_entry_block()):
            literal = ir.Operation.create("torch.vtensor.literal", results=[type], attributes={"value": value})
            name = {"name": ir.StringAttr.get("torch.mylib.twice")}
            twice = ir.Operation.create("torch.operator", results=[type], operands=[literal.result], attributes=name)
            func_d.ReturnOp([twice.result])
    return made


def test_weights_are_in_the_bytecode_and_not_in_the_text():
    weight = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    with expect_report() as found:
        lower(LINALG, with_weight(weight))
    (directory,) = found
    text = (directory / "before.mlir").read_text()
    assert "dense_resource<layer.weight> : tensor<100x100xf32>" in text
    assert len(text) < 2000
    stored = (directory / "before.mlirbc").read_bytes()
    assert weight.tobytes() in stored

    again = directory / "again.mlirbc"
    ir.Module.parseFile(str(directory / "before.mlirbc"), new_context()).operation.write_bytecode(str(again))
    assert again.read_bytes() == stored


def test_text_is_bounded(monkeypatch):
    monkeypatch.setattr(report_contents, "READABLE_LIMIT", 300)
    with expect_report() as found:
        lower(LINALG, module("\n".join(f"%x{n} = torch.constant.int {n}" for n in range(100)) + CUSTOM_OP))
    text = (found[0] / "before.mlir").read_text()
    assert len(text) < 450
    assert text.splitlines()[-1].endswith("more characters")


def test_parallel_failures_do_not_collide(dump):
    def fail(number: int) -> Path:
        with expect_report() as found:
            lower(LINALG, module(CUSTOM_OP.replace("twice", f"op{number}")))
        assert f"torch.mylib.op{number}" in (found[0] / "before.mlir").read_text()
        return found[0]

    with ThreadPoolExecutor(8) as pool:
        directories = set(pool.map(fail, range(8)))
    assert len(directories) == 8
    assert all(sorted(path.name for path in directory.iterdir()) == FILES for directory in directories)


def test_failure_mentions_that_no_report_was_written(dump):
    dump.parent.mkdir()
    dump.write_text("a file is in the way")
    with pytest.raises(StageFailed) as caught:
        lower(LINALG, module(CUSTOM_OP))
    assert caught.value.stage == "backend-types"
    assert caught.value.report is None
    assert caught.value.diagnostics[0].message == "nothing lowered 'torch.mylib.twice'"
    assert isinstance(caught.value.__cause__, ir.MLIRError)
    first, *_, last = str(caught.value).splitlines()
    assert first == "stage 'backend-types' failed:"
    assert last.startswith("no report of it could be written: ")
    assert str(dump) in last


def test_incomplete_report_is_removed(dump, monkeypatch):
    monkeypatch.setattr(bundle, "versions", lambda: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(StageFailed, match="no report of it could be written: no space left"):
        lower(LINALG, module(CUSTOM_OP))
    assert list(dump.iterdir()) == []


def test_full_disk():
    with pytest.raises(OSError, match="No space left on device"):
        report_contents.save_bytecode(module(CUSTOM_OP).operation, Path("/dev/full"))


def test_success_prints_and_writes_nothing(dump, monkeypatch, capfd):
    def refuse(*_args, **_kwargs):
        raise AssertionError("nothing is to be serialised")

    for name in ("get_asm", "print", "write_bytecode", "__str__"):
        monkeypatch.setattr(ir.Operation.__base__, name, refuse)
    given = module(f"%r = torch.aten.relu %x : {T} -> {T}")
    trace = run(pipeline_for(LINALG, LoweringOptions()).stages, given)
    assert [stage.snapshot for stage in trace.stages] == [None] * len(trace.stages)
    assert capfd.readouterr() == ("", "")
    assert not dump.exists()


def test_report_without_a_program():
    trace = Trace(reporter=Reporter(), planned=("frontend", "decompositions"))
    with pytest.raises(StageFailed) as caught, trace.stage("frontend"):
        raise ValueError("no")
    assert caught.value.report is not None
    assert sorted(path.name for path in caught.value.report.iterdir()) == ["report.json", "report.md"]
    page = (caught.value.report / "report.md").read_text()
    assert "| decompositions | not reached |  |" in page
    assert "There is no `program.pt2`" in page
    assert 'raise ValueError("no")' in page
