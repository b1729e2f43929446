"""Dtypes on the JIT against eager."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

from fx_importer import lower

X = torch.tensor([[255, 1, 2], [3, 128, 200]], dtype=torch.uint8)
Y = torch.tensor([[2, 254, 7], [3, 5, 129]], dtype=torch.uint8)
NUMBERS = torch.tensor([[1 + 2j, -3.5, 0.25j], [4 - 1j, -0.5 - 0.5j, 1e-3 + 7j]])
OTHERS = torch.tensor([[2 - 1j, 1j, 3], [-1, 5 + 8j, 0.5 + 0.25j]])


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = lambda x, y: function(x, y)


def check(function, *inputs, **tolerance):
    results = lower(Model(function), *inputs, output_type="linalg").run(*inputs)
    for ours, eager in zip(tree_leaves(results), tree_leaves(function(*inputs)), strict=True):
        torch.testing.assert_close(ours, eager.resolve_conj(), **tolerance)


UINT8 = {
    "comparisons": lambda x, y: (x < y, x > 100, x == 200),
    "reductions": lambda x, y: (x.sum(), x.sum(1), x.max(), x.amin(1), x.argmax(1), x.any()),
    "arithmetic": lambda x, y: (x + 200, x * y, 1 - x, x // y, x % y, x / y, x >> 1, x @ y.t()),
    "conversions": lambda x, y: (x.float(), x.long(), x.to(torch.int8), (x.float() / 2).to(torch.uint8)),
    "movement": lambda x, y: (torch.cat([x, y]), torch.where(x > y, x, y), x.sort(1)[0]),
}


@pytest.mark.parametrize("name", UINT8)
def test_uint8(name):
    check(UINT8[name], X, Y, rtol=0, atol=0)


BOOLS, BYTES = torch.tensor([True, False, True]), torch.tensor([-128, 3, 127], dtype=torch.int8)


@pytest.mark.parametrize("output_type", ["linalg", "stablehlo"])
def test_extrema_of_uint8(output_type):
    def extrema(x):
        ends = x.max(), x.min(), *x.max(0), *x.min(1), x.amax(1), x.amin(0), *torch.aminmax(x, dim=1)
        return *ends, x.argmax(1), x.argmin(0), x.all(1), x.any(0), x.all()

    x = torch.tensor([[128, 255, 200], [1, 2, 0], [3, 130, 127]], dtype=torch.uint8)
    for ours, eager in zip(lower(extrema, x, output_type=output_type).run(x), extrema(x), strict=True):
        torch.testing.assert_close(ours, eager)


OF_BYTES = {
    "bools-arithmetic": lambda x, y: (x * y, x & y, torch.maximum(y, x), x + y, torch.where(x, x, y), y // (x | True)),
    "bools-comparisons": lambda x, y: (x < y, x == y, torch.clamp(y, x, y), torch.clamp(x, 2, 2), x.clamp(2, False)),
    "extrema": lambda x, y: (y.max(), y.min(), y.argmin(), y.view(torch.uint8).max()),
    "products": lambda x, y: (
        torch.outer(y, y) @ y,
        torch.outer(y, y)[None] @ y[None, :, None],
        torch.mm(y[None], y[:, None]),
    ),
    "convolutions": lambda x, y: torch.conv1d(y[None, None], y[None, None, 1:], padding=1),
    "ranges": lambda x, y: (torch.arange(3, dtype=torch.int8) + y, torch.arange(3.7, 0.2, -1.4, dtype=torch.uint8)),
    "numbers-cut": lambda x, y: torch.addmv(y[:1], y[None], y, alpha=2.9, beta=0.2),
    "mixed-parts": lambda x, y: (torch.cat([x, y]), torch.stack([y.view(torch.uint8), x]), torch.cat([y, x])),
    "signs": lambda x, y: (
        torch.sign(torch.full((2,), 1.0)),
        torch.sign(y),
        torch.sign(y.view(torch.uint8).float() - 9),
    ),
    "mixed-bounds": lambda x, y: (torch.clamp(x, y.half(), x), torch.clamp(y.long(), y.float() / 2, y)),
}


@pytest.mark.parametrize("name", OF_BYTES)
def test_int8_with_other_dtypes(name):
    check(OF_BYTES[name], BOOLS, BYTES, rtol=0, atol=0)


def test_manifest_has_the_dtypes_of_the_model():
    lowered = lower(Model(lambda x, y: (x, x + y)), X, Y, output_type="linalg")
    function = lowered.manifest.functions["main"]
    assert [argument.type.dtype for argument in function.arguments] == ["uint8", "uint8"]
    assert [result.type.dtype for result in function.results] == ["uint8", "uint8"]


def test_wider_unsigned_integers():
    def function(x, y):
        return x.float(), x.sum(), torch.cat([x, y]), (x.double() * 0.5).to(torch.uint64), x.to(torch.uint16)

    x, y = (each.view(torch.uint64) for each in (torch.tensor([-1, 2**62 + 1]), torch.tensor([-(2**63), 3])))
    check(function, x, y, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float16])
def test_complex_from_other_dtypes(dtype):
    x = torch.tensor([0, 1, 200]).to(dtype)
    check(lambda x, y: (x.to(torch.complex64), y + 1j), x, x)


def test_complex_numbers():
    phases = torch.tensor([1j, 2.0, 1 - 1j])

    def function(x, y):
        sums = x.sum(), x.mean(1)
        return x + y, x / y, 1 / x, x * phases, x * 2j, x.abs(), x.conj() * y, x.exp(), x == y, x.real, *sums

    check(function, NUMBERS, OTHERS)


@pytest.mark.parametrize("output_type", ["linalg", "stablehlo"])
def test_quotients_of_float64_by_complex64(output_type):
    x, y = torch.tensor([0.1, 3.0], dtype=torch.float64), torch.tensor([0.3 + 0.7j, 2 - 1j])
    result = lower(Model(torch.div), x, y, output_type=output_type).run(x, y)
    torch.testing.assert_close(result, x / y, rtol=1e-14, atol=0)


WHOLE = torch.tensor([[3, -2, 0], [1, -1, 7]], dtype=torch.int32)
SMALL = torch.tensor([[2, 5, 0], [-3, -4, 11]], dtype=torch.int32)
OF_WHOLE_NUMBERS = {
    "powers": lambda x, y: (x**y, 2 ** y.abs(), x.long() ** y),
    "products": lambda x, y: (x.prod(), x.prod(1), y.prod(0, keepdim=True), x[0] @ y[1]),
    "running-products": lambda x, y: (x.cumprod(1), y.cumprod(0, dtype=torch.int32)),
    "batches": lambda x, y: torch.addbmm(x, x.reshape(1, 2, 3), y.reshape(1, 3, 2) @ y[:, :2] @ x),
    "steps": lambda x, y: (torch.heaviside(x, y), torch.heaviside(x[0, 2], y[0, 0])),
    "infinity": lambda x, y: (torch.isinf(x), torch.isinf(y > 0)),
    "error-function": lambda x, y: (torch.erf(x), torch.erf(y > 0)),
    "bools-sorted": lambda x, y: ((x > 0).sort(dim=1, stable=True), torch.msort(y > 0)),
    "bools-compared": lambda x, y: (torch.isclose(x > 0, y > 0), torch.clamp_min(x > 0, y > 0), (x > 0).square()),
    "bools-added": lambda x, y: ((x > 0) + True, (x > 0) + (y > 0), (x > 0).amin(1, keepdim=True), (x > 0).max()),
    "bits": lambda x, y: (x | 5, (x > 0) | True, x ^ -3, torch.bitwise_or(3, y), x & 6),
    "least": lambda x, y: ((x.short() - 32766).argmin(1), *(x.short() - 32766).min(1), (x > 0) ** True),
    "padded": lambda x, y: torch.nn.functional.pad(x.short(), [1, 2, 0, 1], value=3),
    "divisors-of-other-strides": lambda x, y: torch.gcd(x, y.t().contiguous().t()),
    "bools-moved": lambda x, y: ((x > 0).diagonal(), (x > 0).prod(1)),
}


@pytest.mark.slow_rows(
    "^powers-tosa$",
    "^bools-moved-linalg$",
    "^powers-linalg$",
    "^bools-sorted-tosa$",
    "^bools-moved-tosa$",
    "^running-products-stablehlo$",
    "^bools-moved-stablehlo$",
    "^bools-added-linalg$",
    "^bools-sorted-linalg$",
    "^bits-linalg$",
    "^bools-added-tosa$",
    "^bools-compared-stablehlo$",
    "^bits-stablehlo$",
    "^steps-stablehlo$",
    "^bools-added-stablehlo$",
    "^products-tosa$",
    "^products-stablehlo$",
    "^bools-sorted-stablehlo$",
    "^batches-linalg$",
    "^powers-stablehlo$",
)
@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
@pytest.mark.parametrize("name", OF_WHOLE_NUMBERS)
def test_integers_and_bools(name, output_type):
    function = OF_WHOLE_NUMBERS[name]
    backend = "stablehlo" if output_type == "stablehlo" else "jit"
    results = lower(Model(function), WHOLE, SMALL, output_type=output_type).caller(backend=backend)(WHOLE, SMALL)
    for ours, eager in zip(tree_leaves(results), tree_leaves(function(WHOLE, SMALL)), strict=True):
        torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64])
def test_least_integer_by_minus_one(dtype):
    x, y = torch.tensor([torch.iinfo(dtype).min, 7], dtype=dtype), torch.tensor([-1, -2], dtype=dtype)
    check(lambda x, y: x // y, x, y, rtol=0, atol=0)  # eager traps for the other divisions of int64


def test_sums_of_small_integers():
    check(lambda x, y: torch.bincount(x.reshape(-1).abs(), minlength=4), WHOLE, SMALL, rtol=0, atol=0)


@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
def test_complex_numbers_times_powers_of_two(output_type):
    called = lower(Model(torch.ldexp), NUMBERS, OTHERS, output_type=output_type).caller(backend="jit")
    torch.testing.assert_close(called(NUMBERS, OTHERS), torch.ldexp(NUMBERS, OTHERS))


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_power_of_bools_whose_exported_dtype_is_not_that_of_eager(output_type):
    x = torch.tensor([True, False])
    lowered = lower(lambda x: torch.pow(x, True).to(torch.float32), x, output_type=output_type)
    torch.testing.assert_close(lowered.run(x), torch.tensor([1.0, 0.0]))
