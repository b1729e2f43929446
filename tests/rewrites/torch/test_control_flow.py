"""Errors and results of control flow rewrites."""

import pytest

from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import StageFailed
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import run_stage, run_text
from fx_importer.targets import target_for

LIST = """
func.func @main(%go: !torch.bool, %x: !torch.vtensor<[2],f32>) -> !torch.list<vtensor> {
  %0 = torch.prim.ListConstruct %x : (!torch.vtensor<[2],f32>) -> !torch.list<vtensor>
  %1 = torch.prim.If %go -> (!torch.list<vtensor>) {
    torch.prim.If.yield %0 : !torch.list<vtensor>
  } else {
    %2 = torch.prim.ListConstruct : () -> !torch.list<vtensor>
    torch.prim.If.yield %2 : !torch.list<vtensor>
  } loc("model.py":7:1)
  return %1 : !torch.list<vtensor>
}
"""


@pytest.mark.parametrize("output_type", [OutputType.TOSA, OutputType.STABLEHLO])
def test_unsupported_types_are_errors_with_the_line(output_type):
    module = ir.Module.parse(LIST, new_context())
    stage = target_for(output_type).pipeline_from_torch(LoweringOptions()).stages[0]
    with pytest.raises(StageFailed) as caught, Trace().stage(stage.name, module):
        run_stage(stage, module)
    assert caught.value.stage == "control-flow"
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.where == "model.py:7"
    assert diagnostic.message == (
        "'torch.prim.If': a value of type !torch.list<vtensor> cannot go in or out of its regions"
    )


@pytest.mark.parametrize(
    "output_type, signs",
    [(OutputType.TOSA, "tensor<?x2xi8>"), (OutputType.STABLEHLO, "tensor<?x2xui8>")],
    ids=["tosa", "stablehlo"],
)
def test_unsigned_and_dynamic_tensors_pass(output_type, signs):
    tensor = "!torch.vtensor<[?,2],ui8>"
    text = f"""
    func.func @main(%go: !torch.vtensor<[],i1>, %x: {tensor}, %y: {tensor}) -> {tensor} {{
      %0 = torch.aten.Bool.Tensor %go : !torch.vtensor<[],i1> -> !torch.bool
      %1 = torch.prim.If %0 -> ({tensor}) {{
        torch.prim.If.yield %x : {tensor}
      }} else {{
        torch.prim.If.yield %y : {tensor}
      }}
      return %1 : {tensor}
    }}"""
    module = ir.Module.parse(text, new_context())
    run_stage(target_for(output_type).pipeline_from_torch(LoweringOptions()).stages[0], module)
    assert "torch.prim.If" not in str(module)
    assert "torch.aten.Bool.Tensor" not in str(module)
    assert f"-> {signs}" in str(module)


ISOLATED = """
func.func @main(%go: tensor<i1>, %x: tensor<2xf32>) -> tensor<2xf32> {
  %one = "tosa.const"() <{values = dense<1.0> : tensor<2xf32>}> : () -> tensor<2xf32>
  %0 = tosa.cond_if %go : tensor<i1> -> tensor<2xf32> {
    %1:2 = tosa.while_loop (%a = %go, %b = %x) : (tensor<i1>, tensor<2xf32>) -> (tensor<i1>, tensor<2xf32>) {
      tosa.yield %a : tensor<i1>
    } do {
    ^bb0(%a: tensor<i1>, %b: tensor<2xf32>):
      %2 = tosa.add %x, %one : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      tosa.yield %go, %2 : tensor<i1>, tensor<2xf32>
    }
    tosa.yield %1#1 : tensor<2xf32>
  } else {
    tosa.yield %one : tensor<2xf32>
  }
  return %0 : tensor<2xf32>
}
"""


def test_isolation_of_nested_regions_converges():
    module = ir.Module.parse(ISOLATED, new_context())
    run_text("builtin.module(fx-importer-isolate-tosa-regions)", module)
    text = str(module)
    assert text.count("tosa.const") == 2  # one in the loop, one in the other branch, none around them
    assert "tosa.cond_if %arg0 (%arg2 = %arg0, %arg3 = %arg1)" in text
    assert "tosa.while_loop (%arg4 = %arg2, %arg5 = %arg3, %arg6 = %arg3, %arg7 = %arg2)" in text
    run_text("builtin.module(fx-importer-isolate-tosa-regions)", module)
    assert str(module) == text
