"""Conversions of fp8 on the JIT, from TOSA and StableHLO too, compared with eager for all bits and boundaries."""

import math

import pytest
import torch

from fx_importer import lower

DTYPES = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
OF_TOSA = DTYPES[:2]


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether all values and the signs of zeros are equal; NaN equals NaN."""
    left, right = left.double(), right.double()
    number = ~right.isnan()
    return bool((left.isnan() == right.isnan()).all()) and torch.equal(
        torch.stack([left[number], torch.signbit(left[number])]),
        torch.stack([right[number], torch.signbit(right[number])]),
    )


def cases(*names):
    return [
        pytest.param(dtype, name, id=f"{dtype}-{name}".removeprefix("torch."))
        for dtype in DTYPES
        for name in names
        if name != "tosa" or dtype in OF_TOSA
    ]


@pytest.mark.parametrize("dtype, output_type", cases("stablehlo", "tosa"))
def test_conversions(dtype, output_type):
    def convert(whole, half, bits, integers):
        converted = bits.to(torch.int32) if dtype in OF_TOSA else bits.to(torch.float32)
        return whole.to(dtype), half.to(dtype), bits.float(), bits.to(torch.bfloat16), integers.to(dtype), converted

    generator = torch.Generator().manual_seed(0)
    whole = torch.randn(2000, generator=generator) * 10 ** torch.randn(2000, generator=generator)
    edges = torch.tensor(
        [0.0, math.inf, math.nan, 448, 464, 464.01, 480, 240, 248, 57344, 61440, 61441, 1e30, 2.0**-17]
    )
    whole = torch.cat([whole, edges, -edges])
    half = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    bits = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)
    if dtype in OF_TOSA:
        bits = torch.where(bits.float().isfinite(), bits.float(), 0.0).to(dtype)  # eager's integers are undefined there
    integers = torch.arange(-600, 600)
    inputs = whole, half, bits, integers
    results = lower(convert, *inputs, output_type=output_type).caller(backend="jit")(*inputs)
    for result, expected in zip(results, convert(*inputs), strict=True):
        assert result.dtype == expected.dtype
        assert same(result, expected)


@pytest.mark.parametrize("dtype, output_type", cases("linalg", "stablehlo", "tosa"))
def test_tensors_are_moved(dtype, output_type):
    weight = torch.randn(3, 2).to(dtype)

    def move(x):
        return torch.cat([x, weight]).t().contiguous(), x[torch.tensor([1, 0])], weight.float() * 2, x.flip(0)[:1]

    x = torch.randn(3, 2).to(dtype)
    lowered = lower(move, x, output_type=output_type)
    for result, expected in zip(lowered.caller(backend="jit")(x), move(x), strict=True):
        assert same(result, expected)
