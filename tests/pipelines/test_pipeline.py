"""Pipelines as values, and how options change them."""

import dataclasses

import pytest

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir, new_context, passmanager
from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import (
    PIPELINES,
    VERIFIERS,
    Nested,
    Pass,
    Pipeline,
    RewriteStep,
    Stage,
    run_stage,
)
from fx_importer.pipelines.pipeline_parser import parse_steps
from fx_importer.targets import pipeline_for, target_for


@pytest.mark.parametrize(
    "value, text",
    [
        (Pass("cse"), "cse"),
        (Pass("a", {"on": True, "off": False, "n": 3, "name": "x"}), "a{on=true off=false n=3 name=x}"),
        (Pass("a", {"legal-ops": ("aten.relu", "aten.tanh")}), "a{legal-ops=aten.relu,aten.tanh}"),
        (
            Nested("func.func", (Pass("cse"), Nested("scf.for", (Pass("canonicalize"),)))),
            "func.func(cse,scf.for(canonicalize))",
        ),
        (
            Stage("s", "", (Pass("inline"), Nested("func.func", (Pass("cse"),)))),
            "builtin.module(inline,func.func(cse))",
        ),
        (Pipeline("p", (Stage("s", "", (Pass("a"),)), Stage("t", "", (Pass("b"),)))), "builtin.module(a,b)"),
        (Pipeline("p", ()), "builtin.module()"),
    ],
)
def test_text(value, text):
    assert str(value) == text


def test_pipelines_are_frozen_values():
    one, same = (Stage("s", "d", (Pass("a", {"n": 1}),)) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != dataclasses.replace(one, passes=(Pass("a", {"n": 2}),))
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "t"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES)
def test_listed_pipelines_parse_whole_and_by_stage(pipeline):
    for value in (pipeline, *pipeline.stages):
        for step in parse_steps(str(value)):
            if not isinstance(step, RewriteStep):
                passmanager.PassManager.parse(f"builtin.module({step})", new_context())
    assert all(stage.description.endswith(".") for stage in pipeline.stages)


def test_list_of_pipelines():
    assert list(PIPELINES) == ["torch-backend", "linalg-on-tensors", "tosa", "stablehlo", "llvm"]


@pytest.mark.parametrize("output_type", OutputType)
def test_pipeline_of_an_output_type(output_type):
    pipeline = pipeline_for(output_type, LoweringOptions())
    names = [stage.name for stage in pipeline.stages]
    assert pipeline.name == output_type.value
    assert len(set(names)) == len(names)
    assert names[:1] == ([] if output_type is OutputType.RAW else ["torch-backend"])
    assert names[1:] == [stage.name for stage in target_for(output_type).pipeline_from_torch(LoweringOptions()).stages]


SILU = """
func.func @main(%x: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> {
  %0 = torch.aten.silu %x : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
  return %0 : !torch.vtensor<[2],f32>
}
"""


@pytest.mark.parametrize(
    "legal, whole",
    [((), False), (("aten.silu",), True), (("torch.aten.relu", "torch.aten.silu", "mylib.own"), True)],
)
def test_backend_legal_ops_are_not_decomposed(legal, whole):
    stage, _ = pipeline_for(OutputType.TORCH, LoweringOptions(backend_legal_ops=legal)).stages
    module = ir.Module.parse(SILU, new_context())
    run_stage(stage, module)
    assert ("torch.aten.silu" in str(module)) is whole


def test_unknown_backend_legal_ops_are_listed():
    with pytest.raises(UsageError) as caught:
        pipeline_for(OutputType.TORCH, LoweringOptions(backend_legal_ops=("aten.softmax", "aten.rellu", "aten.relu")))
    assert "'aten.softmax' (perhaps 'aten.softmax.int'" in str(caught.value)
    assert "'aten.rellu' (perhaps 'aten.relu'" in str(caught.value)
    assert "op 'aten.relu'" not in str(caught.value)


MAX_POOL = """
func.func @main(%x: !torch.vtensor<[1,1,4,4],f32>) -> !torch.vtensor<[1,1,2,2],f32> {
  %0 = torch.constant.int 0
  %1 = torch.constant.int 1
  %2 = torch.constant.int 2
  %false = torch.constant.bool false
  %zeros = torch.prim.ListConstruct %0, %0 : (!torch.int, !torch.int) -> !torch.list<int>
  %ones = torch.prim.ListConstruct %1, %1 : (!torch.int, !torch.int) -> !torch.list<int>
  %twos = torch.prim.ListConstruct %2, %2 : (!torch.int, !torch.int) -> !torch.list<int>
  %3 = torch.aten.max_pool2d %x, %twos, %twos, %zeros, %ones, %false : !torch.vtensor<[1,1,4,4],f32>, !torch.list<int>,
    !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool -> !torch.vtensor<[1,1,2,2],f32>
  return %3 : !torch.vtensor<[1,1,2,2],f32>
}
"""


@pytest.mark.parametrize("allowed, initial", [(True, "0xFF800000"), (False, "-3.40282347E+38")])
def test_infinities_are_emitted_only_if_allowed(allowed, initial):
    module = ir.Module.parse(MAX_POOL, new_context())
    for stage in pipeline_for(OutputType.LINALG_ON_TENSORS, LoweringOptions(allow_non_finites=allowed)).stages:
        run_stage(stage, module)
    assert f"arith.constant {initial} : f32" in str(module)


@pytest.mark.parametrize("output_type", [OutputType.LINALG_ON_TENSORS, OutputType.TOSA, OutputType.STABLEHLO])
def test_pipeline_without_a_pass(output_type: OutputType):
    whole = pipeline_for(output_type, LoweringOptions())
    without = whole.without_passes(*VERIFIERS)
    assert len(str(whole).split("torch-verify-")) == 2
    assert "torch-verify-" not in str(without)
    assert [stage.name for stage in without.stages] == [stage.name for stage in whole.stages]
