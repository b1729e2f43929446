"""Python steps among passes: their text, runs, failures, and parsing."""

import pytest

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import (
    REWRITES,
    Nested,
    Pass,
    Pipeline,
    RewriteStep,
    Stage,
    run_stage,
    run_text,
)
from fx_importer.pipelines.pipeline_parser import parse_steps
from fx_importer.pipelines.replay import main
from fx_importer.targets import pipeline_for

CSE = Nested("func.func", (Pass("cse"),))


def module() -> ir.Module:
    text = "func.func @main() -> (i1, i1) { %0 = arith.constant true %1 = arith.constant true return %0, %1 : i1, i1 }"
    return ir.Module.parse(text, new_context())


def test_steps_run_in_order():
    seen: list[int] = []

    def count(operation: ir.Operation) -> None:
        seen.append(str(operation).count("arith.constant"))

    step = RewriteStep("count", count)
    stage = Stage("s", "", (step, CSE, step, step))
    assert str(stage) == "builtin.module(count,func.func(cse),count,count)"
    assert str(Pipeline("p", (stage, Stage("t", "", (step,))))).count("count") == 4
    run_stage(stage, module())
    assert seen == [2, 1, 1]


def test_exception_of_a_step_ends_the_stage():
    def fail(operation: ir.Operation) -> None:
        raise KeyError("of the rewrite's own")

    def never(operation: ir.Operation) -> None:
        raise AssertionError

    with pytest.raises(KeyError, match="of the rewrite's own"):
        run_stage(Stage("s", "", (RewriteStep("fail", fail), RewriteStep("never", never))), module())


def test_diagnostic_of_a_step_ends_the_stage():
    def fail(operation: ir.Operation) -> None:
        operation.location.emit_error("cannot do it")

    def never(operation: ir.Operation) -> None:
        raise AssertionError

    with pytest.raises(ir.MLIRError) as caught:
        run_stage(Stage("s", "", (RewriteStep("fail", fail), CSE, RewriteStep("never", never))), module())
    assert "cannot do it" in str(caught.value)


@pytest.mark.parametrize("output_type", OutputType)
def test_text_of_a_pipeline_round_trips(output_type):
    pipeline = pipeline_for(output_type, LoweringOptions(backend_legal_ops=("aten.silu", "aten.relu")))
    for stage in pipeline.stages:
        steps = parse_steps(str(stage))
        assert f"builtin.module({','.join(map(str, steps))})" == str(stage)
        assert [s for s in steps if isinstance(s, RewriteStep)] == [
            s for s in stage.passes if isinstance(s, RewriteStep)
        ]


def test_names():
    assert all(name == step.name and name.startswith("fx-importer-") for name, step in REWRITES.items())
    with pytest.raises(UsageError, match="fx-importer-no-such"):
        run_text("builtin.module(cse,fx-importer-no-such)", module())


LOOP = """
func.func @main(%x: !torch.int) -> !torch.int {
  %none = torch.constant.none
  %turns = torch.constant.int 7
  %true = torch.constant.bool true
  %0:2 = torch.prim.Loop %turns, %true, init(%x, %none) {
  ^bb0(%i: !torch.int, %a: !torch.int, %b: !torch.none):
    torch.prim.Loop.condition %true, iter(%a, %b : !torch.int, !torch.none)
  } : (!torch.int, !torch.bool, !torch.int, !torch.none) -> (!torch.int, !torch.none)
  return %0#0 : !torch.int
}
"""


def test_replay_of_a_step(tmp_path, capfd):
    path = tmp_path / "before.mlir"
    path.write_text(LOOP)
    assert main([str(path), "builtin.module(cse,fx-importer-control-flow-to-tosa)"]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "error: 'torch.prim.Loop': a value of type !torch.none cannot go in or out of its regions" in err
