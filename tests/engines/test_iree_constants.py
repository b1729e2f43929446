"""Constants on IREE, which does not compile small resources of bfloat16, and drops the sign of i48."""

from __future__ import annotations

import pytest
import torch

from fx_importer import lower, quantize
from fx_importer.engines.function_extraction import extract_function
from fx_importer.mlir.bindings import ir
from fx_importer.rewrites.iree.constants import extend_i48_constants, inline_bf16_constants


def linear(outputs: int, dtype: torch.dtype):
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, outputs).to(dtype).requires_grad_(False)
    if outputs > 1:
        layer.bias[:2] = torch.tensor([torch.nan, -torch.inf])
    return lower(layer, torch.randn(3, 8).to(dtype), output_type="linalg")


@pytest.mark.parametrize("outputs", [1, 40])
def test_a_bias_of_bfloat16(outputs):
    pytest.importorskip("iree.compiler", reason="the extra 'iree' is not installed")
    linear(outputs, torch.bfloat16).verify(backends=["iree"]).raise_if_failed()


@pytest.mark.parametrize(("outputs", "dtype"), [(129, torch.bfloat16), (40, torch.float32)])
def test_others_stay(outputs, dtype):
    copy, _ = extract_function(linear(outputs, dtype).module, "main")
    before = str(copy)
    inline_bf16_constants(copy.operation)
    assert str(copy) == before


@pytest.mark.slow_rows("layer[02]")
@pytest.mark.parametrize("layer", [torch.nn.Conv2d(4, 4, 3), torch.nn.Conv2d(4, 8, 1, groups=2), torch.nn.Linear(4, 9)])
def test_int16_biases_in_tosa(layer):
    pytest.importorskip("iree.compiler", reason="the extra 'iree' is not installed")
    torch.manual_seed(1)
    images = [torch.randn(1, 4, 4, 4) for _ in range(2)]
    quantized = quantize(torch.nn.Sequential(layer, torch.nn.GELU()).eval(), images, activations="int16")
    lowered = lower(quantized, images[0], output_type="tosa", quantized="integer")
    lowered.verify(images[0], backends=["iree"], rtol=0, atol=0).raise_if_failed()


@pytest.mark.parametrize(
    ("values", "halves"),
    [("[-1, 16777216]", ["[-1, 1]", "[16777215, 0]"]), ("-140737488355328", ["-8388608", "0"]), ("[5, 0]", [])],
)
def test_constants_of_i48(values, halves):
    text = (
        f'func.func @main() -> tensor<2xi48> {{ %0 = "tosa.const"() <{{values = dense<{values}> : tensor<2xi48>}}> : '
    )
    with ir.Context():
        module = ir.Module.parse(text + "() -> tensor<2xi48> return %0 : tensor<2xi48> }")
    extend_i48_constants(module.operation)
    assert module.operation.verify()
    assert [f"arith.constant dense<{half}> : tensor<2xi32>" in str(module) for half in halves] == [True] * len(halves)
    assert ("tosa.const" in str(module)) == (not halves)


def test_many_constants_of_i48():
    values = list(range(-150, 150))
    text = f'%0 = "tosa.const"() <{{values = dense<{values}> : tensor<300xi48>}}> : () -> tensor<300xi48>'
    with ir.Context():
        module = ir.Module.parse(f"func.func @main() -> tensor<300xi48> {{ {text} return %0 : tensor<300xi48> }}")
    extend_i48_constants(module.operation)
    high, low = (
        op.attributes["value"]
        for op in module.body.operations[0].regions[0].blocks[0].operations
        if "value" in op.attributes
    )
    assert [a * 2**24 + b for a, b in zip(high, low, strict=False)] == values
