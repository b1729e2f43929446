"""Pads: only their borders are filled, and what is padded is computed inside."""

import pytest
import torch
from torch import nn
from torch.export import Dim

from fx_importer import lower
from fx_importer.engines.engine_pipeline import run_engine_pipeline
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.mlir.walk import operations
from fx_importer.pipelines import Pipeline
from fx_importer.pipelines.llvm import LOOPS, llvm
from fx_importer.rewrites import fill_pad_borders

PAD = """func.func @main(%x: tensor<{source}xf32>, %i: index, %v: f32) -> tensor<{result}xf32> {{
  %c = arith.constant 3.0 : f32
  %p = tensor.pad %x low[{low}] high[{high}] {{
  ^bb0(%a: index, %b: index):
    {inside}
    tensor.yield %{value} : f32
  }} : tensor<{source}xf32> to tensor<{result}xf32>
  return %p : tensor<{result}xf32>
}}"""


@pytest.mark.parametrize(
    "source, low, high, result, value, fills",
    [
        ("2x3", "1, 2", "2, 1", "5x6", "c", 4),
        ("2x3", "0, 2", "0, 0", "2x5", "v", 1),
        ("2x3", "0, 0", "1, 0", "3x3", "inner", 1),
        ("2x3", "%i, 0", "0, 0", "?x3", "c", None),
        ("?x3", "1, 0", "0, 0", "?x3", "c", None),
        ("?x3", "0, 1", "0, 1", "?x5", "c", 2),
        ("2x3", "1, 0", "0, 0", "3x3", "position", None),
    ],
)
def test_borders_are_filled(source, low, high, result, value, fills):
    inside = {
        "inner": "%inner = arith.constant 1.0 : f32",
        "position": "%n = arith.index_cast %a : index to i32\n%position = arith.sitofp %n : i32 to f32",
    }.get(value, "")
    context = new_context()
    load_dialects(context)
    text = PAD.format(source=source, low=low, high=high, result=result, value=value, inside=inside)
    module = ir.Module.parse(text, context)
    fill_pad_borders(module.operation)
    module.operation.verify()
    names = [op.name for op in operations(module.operation)]
    assert names.count("tensor.pad") == (fills is None)
    assert names.count("linalg.fill") == (fills or 0)
    assert names.count("tensor.insert_slice") == (0 if fills is None else fills + 1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("mode", ["zeros", "pool"])
def test_padded_tensors_of_one_shape_are_not_copied(mode, dynamic):
    block = nn.Conv2d(16, 16, 5, padding=2, groups=16, bias=False) if mode == "zeros" else nn.MaxPool2d(3, 1, 1)
    model, x = nn.Sequential(nn.ReLU(), block, nn.Hardswish(), block, nn.Tanh()).eval(), torch.randn(2, 16, 9, 11)
    shapes = ({0: Dim("n", max=9)},) if dynamic else None
    lowered = lower(model, x, output_type="linalg-on-tensors", dynamic_shapes=shapes)
    for images in (x, torch.cat([x, x + 1])) if dynamic else (x,):
        torch.testing.assert_close(lowered.run(images), model(images))
    stages = llvm().stages
    names = [stage.name for stage in stages]
    run_engine_pipeline(Pipeline("llvm", stages[: names.index(LOOPS.name)]), lowered.module)
    assert not operations(lowered.module.operation, ("memref.copy",))


def test_sums_of_depthwise_convolutions_begin_in_registers():
    model = nn.Conv2d(64, 64, 5, padding=2, groups=64, bias=False).eval()
    lowered = lower(model, torch.randn(1, 64, 16, 16), output_type="linalg-on-tensors")
    stages = llvm().stages
    names = [stage.name for stage in stages]
    run_engine_pipeline(Pipeline("llvm", stages[: names.index(LOOPS.name) + 1]), lowered.module)
    assert "dense<0.000000e+00> : vector<" in str(lowered.module)
