"""Products of half precision on IREE: one side is read in float32, and the numbers are the same."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from fx_importer import lower
from fx_importer.engines.function_extraction import extract_function
from fx_importer.engines.iree.iree_compiler import compile_to, prepare
from fx_importer.engines.iree.iree_targets import iree_target
from fx_importer.rewrites.iree.half_precision_matmuls import widen_half_precision_matmuls

HALF = [torch.bfloat16, torch.float16]


def values(*sizes, dtype):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.slow_rows("^torch.float16$")
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_a_linear_layer_reads_float32_rows_and_the_numbers_are_the_same(dtype, tmp_path):
    pytest.importorskip("iree.compiler", reason="the extra 'iree' is not installed")
    layer = torch.nn.Linear(24, 40, bias=False).to(dtype).requires_grad_(False)
    x = values(5, 24, dtype=dtype)
    x[1, 2], x[2, 3], x[3, 4], x[4] = torch.nan, torch.inf, -torch.inf, -0.0
    lowered = lower(layer, x, output_type="linalg", dynamic_shapes=({0: Dim("rows")},))
    copy, _ = extract_function(lowered.module, "main")
    prepare(copy, "none", iree_target("cpu"))
    assert copy.operation.verify()
    (product,) = [each for each in str(copy).splitlines() if "linalg.matmul" in each]
    narrow = {torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
    assert f"tensor<?x24xf32>, tensor<40x24x{narrow}>" in product
    compile_to(tmp_path / "flow", copy, "none", iree_target("cpu"), flags=["--compile-to=flow"])
    (kernel,) = [each for each in (tmp_path / "flow").read_text().splitlines() if "linalg.matmul" in each]
    assert "tensor<?x24xf32>" in kernel  # and is not converted in the loop
    assert (tmp_path / "flow").read_text().count("flow.executable private") == 2
    lowered.verify(backends=["iree"]).raise_if_failed()


@pytest.mark.slow_rows("bfloat16")
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_a_batch_of_products(dtype):
    pytest.importorskip("iree.compiler", reason="the extra 'iree' is not installed")
    x, y = values(2, 9, 16, dtype=dtype), values(2, 16, 11, dtype=dtype)
    lowered = lower(torch.matmul, x, y, output_type="linalg")
    copy, _ = extract_function(lowered.module, "main")
    widen_half_precision_matmuls(copy.operation)
    assert "math.copysign" in str(copy)
    lowered.verify(backends=["iree"]).raise_if_failed()


class OfWeight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(values(24, 40, dtype=torch.bfloat16), requires_grad=False)

    def forward(self, x):
        return self.weight @ x


def test_a_weight_stays():
    lowered = lower(OfWeight(), values(40, 9, dtype=torch.bfloat16), output_type="linalg")
    copy, _ = extract_function(lowered.module, "main")
    widen_half_precision_matmuls(copy.operation)
    (product,) = [each for each in str(copy).splitlines() if "linalg.matmul" in each]
    assert "tensor<24x40xbf16>, tensor<40x9xf32>" in product


@pytest.mark.parametrize(("columns", "dtype"), [(1, torch.bfloat16), (9, torch.float32)])
def test_others_stay(columns, dtype):
    x, y = values(5, 16, dtype=dtype), values(16, columns, dtype=dtype)
    copy, _ = extract_function(lower(torch.matmul, x, y, output_type="linalg").module, "main")
    before = str(copy)
    widen_half_precision_matmuls(copy.operation)
    assert str(copy) == before
