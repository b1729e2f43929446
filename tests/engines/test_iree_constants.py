"""Small constants of bfloat16 on IREE, which does not compile them as resources."""

from __future__ import annotations

import pytest
import torch

from fx_importer import lower
from fx_importer.engines.function_extraction import extract_function
from fx_importer.rewrites.iree.constants import inline_bf16_constants


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
