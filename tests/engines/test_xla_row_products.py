"""Products of bfloat16 with one row on XLA: the matrix is not written in float32."""

from typing import Any

import pytest
import torch

from fx_importer import lower
from fx_importer.engines.function_extraction import extract_function
from fx_importer.rewrites.xla.row_matmuls import double_bf16_rows

SHAPES = {
    "a linear layer": ((1, 1, 64), (64, 96)),
    "a vector on the right": ((96, 64), (64,)),
    "a batch": ((3, 1, 64), (3, 64, 96)),
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES.keys())
def test_the_row_is_passed_twice(shapes):
    pytest.importorskip("jax", reason="the extra 'xla' is not installed")
    inputs = [torch.randn(each).bfloat16() for each in shapes]
    lowered = lower(torch.matmul, *inputs, output_type="stablehlo")
    copy, _ = extract_function(lowered.module, "main")
    double_bf16_rows(copy.operation)
    assert copy.operation.verify()
    (line,) = [each for each in str(copy).splitlines() if "dot_general" in each]
    assert "x2xbf16" in line
    caller: Any = lowered.caller(backend="xla")
    torch.testing.assert_close(caller(*inputs), torch.matmul(*inputs))
    code = caller._functions["main"]._program.as_text()
    assert not any("f32[" in each and "64" in each.partition(" = ")[2].partition("]")[0] for each in code.splitlines())


@pytest.mark.parametrize(("rows", "dtype"), [(2, torch.bfloat16), (1, torch.float32), (1, torch.float16)])
def test_other_products_stay(rows, dtype):
    lowered = lower(torch.matmul, torch.ones(rows, 64).to(dtype), torch.ones(64, 96).to(dtype), output_type="stablehlo")
    copy, _ = extract_function(lowered.module, "main")
    before = str(copy)
    double_bf16_rows(copy.operation)
    assert str(copy) == before
