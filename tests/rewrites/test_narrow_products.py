"""16-bit operands of products on GPUs, evaluated by XLA on the CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fx_importer import lower
from fx_importer.engines import XlaBackend
from fx_importer.engines.engine_pipeline import run_engine_pipeline
from fx_importer.engines.xla.xla_pipeline import xla_pipeline

pytest.importorskip("jaxlib", reason="the extra 'xla' is not installed")


def on_a_gpu(model, *inputs: torch.Tensor) -> tuple[list[str], tuple[torch.Tensor, ...]]:
    """Return the dtypes of the operands of products, as XLA gets them for a GPU, and the results."""
    lowered = lower(model, *inputs, output_type="stablehlo")
    run_engine_pipeline(xla_pipeline("cuda", 1), lowered.module)
    products = [line for line in str(lowered.module).splitlines() if "stablehlo.dot_general" in line]
    operands = [line.rpartition(" : (")[2].partition(")")[0] for line in products]
    dtypes = [each.rpartition("x")[2].rstrip(">") for each in operands]
    return dtypes, XlaBackend().load(lowered.module)(*inputs)


@pytest.mark.parametrize(
    "dtype, options, heads",
    [
        (torch.bfloat16, {}, 4),
        (torch.bfloat16, {"is_causal": True, "scale": 0.3}, 4),
        (torch.bfloat16, {"attn_mask": torch.ones(16, 16, dtype=torch.bool).tril(-1)}, 4),
        (torch.float16, {"enable_gqa": True}, 2),
    ],
)
def test_attention(dtype, options, heads):
    q, k, v = torch.randn(1, 4, 16, 24).to(dtype), *torch.randn(2, 1, heads, 16, 24).to(dtype)
    dtypes, (result,) = on_a_gpu(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), q, k, v)
    assert dtypes == [{torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]] * 2
    expected = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), **options)
    step = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(result.float(), expected, rtol=step, atol=step)


def test_products_of_widened_operands_are_the_same_numbers():
    a, b = torch.randn(2, 8, 16).bfloat16(), torch.randn(2, 16, 8).bfloat16()
    dtypes, (result,) = on_a_gpu(lambda a, b: (a.float() * 0.5) @ b.float(), a, b)
    assert dtypes == ["bf16"]
    torch.testing.assert_close(result, (a.float() * 0.5) @ b.float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        lambda a, b: (a @ b.float()).bfloat16(),  # not the weights of attention
        lambda a, b: torch.softmax(a, -1) @ b.float(),  # a result in float32
        lambda a, b: torch.softmax(a, -1) @ b.double().float(),
    ],
)
def test_other_products_stay_in_float32(model):
    a, b = torch.randn(8, 16), torch.randn(16, 8).bfloat16()
    dtypes, (result,) = on_a_gpu(model, a, b)
    assert dtypes == ["f32"]
    assert torch.allclose(result.float(), model(a, b).float(), rtol=1e-2)


def test_quotients_of_exponentials_are_not_weights_of_attention():
    a, b, c = torch.full((8, 16), 12.0), torch.full((16, 8), 1e-3).half(), torch.full((8, 16), 2.0)
    model = lambda a, b, c: ((torch.exp(a) / c) @ b.float()).half()  # noqa: E731
    dtypes, (result,) = on_a_gpu(model, a, b, c)  # float16 would overflow
    assert dtypes == ["f32"]
    assert torch.allclose(result.float(), model(a, b, c).float(), rtol=1e-2)


def test_numbers_in_masked_rows_of_softmax_other_than_zero_stay_in_float32():
    a, b = torch.randn(8, 16), torch.full((16, 8), 1e-4).half()
    model = lambda a, b: (torch.where(a > 0, 1e6, torch.softmax(a, -1)) @ b.float()).half()  # noqa: E731
    dtypes, (result,) = on_a_gpu(model, a, b)
    assert dtypes == ["f32"]
    assert torch.allclose(result.float(), model(a, b).float(), rtol=1e-2)


def test_factors_that_prevent_overflow_stay_before_products():
    a, b = torch.full((8, 16), 1e25).bfloat16(), torch.full((16, 8), 1e20).bfloat16()
    _, (result,) = on_a_gpu(lambda a, b: (a.float() * 1e-20) @ b.float(), a, b)
    torch.testing.assert_close(result, (a.float() * 1e-20) @ b.float())
