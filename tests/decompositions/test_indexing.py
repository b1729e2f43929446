"""Decomposition rules against eager, on values where a formula goes wrong."""

import inspect
import math
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from fx_importer.decompositions.complex import (
    complex_arithmetic,
    complex_comparisons,
    complex_conversions,
    complex_functions,
    complex_operators,
    complex_reductions,
)
from fx_importer.decompositions.elementwise import arithmetic, clamp, comparisons, division, powers, unsigned
from fx_importer.decompositions.indexing import copies, indexing, shapes, strided_views
from fx_importer.decompositions.matmul import matmul
from fx_importer.decompositions.nn import attention, normalization
from fx_importer.decompositions.reduction import sum_mean_prod, variance
from fx_importer.decompositions.special import polar_coordinates

aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


MATMUL_SHAPES = [
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((0, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((5, 0, 3), (3, 2)),
]


@pytest.mark.parametrize("a, b", MATMUL_SHAPES)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = torch.randn(a), torch.randn(b)
    assert_close(matmul.matmul(x, y), torch.matmul(x, y))
    assert_close(matmul.matmul(x.long(), y.long()), torch.matmul(x.long(), y.long()))


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 2, 3, 4), (0, 4)])
def test_linear(shape: tuple[int, ...]) -> None:
    x, weight, bias = torch.randn(shape), torch.randn(5, 4), torch.randn(5)
    assert_close(matmul.linear(x, weight, bias), F.linear(x, weight, bias))
    assert_close(matmul.linear(x, weight), F.linear(x, weight))


def test_linear_with_a_weight_of_one_row() -> None:
    x, weight = torch.randn(3, 4), torch.randn(4)
    assert_close(matmul.linear(x, weight), F.linear(x, weight))


@pytest.mark.parametrize("beta, alpha", [(1, 1), (0, 1), (0.5, 2), (1, 0)])
def test_sums_of_products(beta: float, alpha: float) -> None:
    scale: dict[str, Any] = {"beta": beta, "alpha": alpha}
    bias = torch.full((3,), math.nan) if beta == 0 else torch.randn(3)  # a beta of zero drops a NaN
    a, b = torch.randn(2, 4), torch.randn(4, 3)
    assert_close(matmul.addmm(bias, a, b, **scale), torch.addmm(bias, a, b, **scale))
    batches = a.expand(5, 2, 4), b.expand(5, 4, 3)
    assert_close(matmul.baddbmm(bias, *batches, **scale), torch.baddbmm(bias, *batches, **scale))
    assert_close(matmul.addbmm(bias, *batches, **scale), torch.addbmm(bias, *batches, **scale), rtol=1e-4, atol=1e-5)
    matrix, vector = b.t(), b[:, 0]
    assert_close(matmul.addmv(bias, matrix, vector, **scale), torch.addmv(bias, matrix, vector, **scale))


@pytest.mark.parametrize("mask", ["none", "bool", "float", "causal"])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention(mask: str, scale: float | None) -> None:
    query, key, value = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 6)
    seen = torch.rand(2, 1, 3, 5) > 0.5
    seen[0, 0, 1] = False  # a row that sees nothing
    additive = torch.where(seen, torch.randn(2, 1, 3, 5), -torch.inf)
    settings = {
        "none": {},
        "bool": {"attn_mask": seen},
        "float": {"attn_mask": additive},
        "causal": {"is_causal": True},
    }
    arguments = {"scale": scale, **settings[mask]}
    ours = attention.scaled_dot_product_attention(query, key, value, **arguments)
    assert_close(ours, F.scaled_dot_product_attention(query, key, value, **arguments))
    assert ours.isfinite().all()


@pytest.mark.parametrize("dtype", HALVES)
def test_attention_in_half_precision(dtype: torch.dtype) -> None:
    query, key, value = (torch.randn(2, 4, 7, 8, dtype=dtype) for _ in range(3))
    exact = F.scaled_dot_product_attention(query.float(), key.float(), value.float())
    assert_close(
        attention.scaled_dot_product_attention(query, key, value), exact.to(dtype)
    )  # eager itself is further off


def test_attention_with_shared_heads() -> None:
    query, key, value = torch.randn(2, 6, 3, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    ours = attention.scaled_dot_product_attention(query, key, value, enable_gqa=True)
    assert_close(ours, F.scaled_dot_product_attention(query, key, value, enable_gqa=True))


# A mean far from zero: the difference of mean squares would lose all digits here.
FAR = {"offset": 1000.0, "rtol": 1e-3, "atol": 1e-3}
NEAR = {"offset": 0.0, "rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("values", [NEAR, FAR])
def test_normalizations(values: dict[str, Any]) -> None:
    x = torch.randn(2, 6, 4, 5) + values["offset"]
    weight, bias = torch.randn(6), torch.randn(6)
    close: dict[str, Any] = {"rtol": values["rtol"], "atol": values["atol"]}
    pixels = torch.randn(4, 5)
    assert_close(normalization.layer_norm(x, [4, 5], pixels, pixels), F.layer_norm(x, (4, 5), pixels, pixels), **close)
    assert_close(normalization.group_norm(x, 3, weight, bias), F.group_norm(x, 3, weight, bias), **close)
    assert_close(normalization.rms_norm(x, [5]), F.rms_norm(x, (5,)), **close)
    ours = normalization.native_group_norm(x, weight, None, 2, 6, 20, 2, 1e-5)
    for mine, theirs in zip(ours, torch.native_group_norm(x, weight, None, 2, 6, 20, 2, 1e-5), strict=True):
        assert_close(mine, theirs, **close)
    ours = normalization.native_layer_norm(x, [5], None, None, 1e-5)
    for mine, theirs in zip(ours, torch.native_layer_norm(x, (5,), None, None, 1e-5), strict=True):
        assert_close(mine, theirs, **close)


@pytest.mark.parametrize("weight", [None, torch.randn(3)])
@pytest.mark.parametrize("bias", [None, torch.randn(3)])
def test_batch_norm_at_inference(weight: torch.Tensor | None, bias: torch.Tensor | None) -> None:
    x, mean, variance_ = torch.randn(2, 3, 4), torch.randn(3), torch.rand(3)
    ours, *rest = normalization.batch_norm_inference(x, weight, bias, mean, variance_, 0.1, 1e-5)
    assert_close(ours, F.batch_norm(x, mean, variance_, weight, bias))
    assert [each.numel() for each in rest] == [0, 0]


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_is_computed_in_single(dtype: torch.dtype) -> None:
    x = torch.full((4, 300), 60.0, dtype=dtype)
    x[:, 0] = 61.0  # the squares alone overflow float16, and bfloat16 cannot tell 60 from 60.003
    assert_close(normalization.layer_norm(x, [300]), F.layer_norm(x, (300,)))
    assert_close(normalization.rms_norm(x, [300]), F.rms_norm(x, (300,)))
    assert_close(variance.var(x, [1]), x.var(1))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("dim", [None, [], [1], [0, -1]])
@pytest.mark.parametrize("correction", [None, 0, 1, 0.5, 100])
@pytest.mark.parametrize("keepdim", [False, True])
def test_variance(dim: list[int] | None, correction: float | None, keepdim: bool) -> None:
    x = torch.randn(2, 3, 4) + 100
    settings = {"correction": correction, "keepdim": keepdim}
    close = {"rtol": 1e-4, "atol": 1e-4, "equal_nan": True}
    assert_close(variance.var(x, dim, **settings), aten.var.correction(x, dim, **settings), **close)
    assert_close(variance.std(x, dim, **settings), aten.std.correction(x, dim, **settings), **close)
    assert_close(variance.var_mean(x, dim, **settings), aten.var_mean.correction(x, dim, **settings), **close)
    assert_close(variance.std_mean(x, dim, **settings), aten.std_mean.correction(x, dim, **settings), **close)


def test_variance_of_complex_numbers() -> None:
    x = torch.randn(3, 4, dtype=torch.complex64)
    assert_close(variance.var(x, [1]), x.var(1))
    assert variance.var(torch.tensor(3.0)).isnan()


SPECIAL = torch.tensor([0.0, -0.0, 1.0, -2.5, 4.0, torch.inf, -torch.inf, torch.nan])


@pytest.mark.parametrize("exponent", [1, 2, 3, 0.5, -0.5, -1, -2, 2.0])
def test_powers(exponent: float) -> None:
    assert_close(powers.power(SPECIAL, exponent), SPECIAL**exponent, equal_nan=True)


def test_powers_of_integers_and_bools() -> None:
    whole = torch.tensor([1, 2, 3])
    for exponent in (0, 2, 5, 2.0, 0.5):
        assert_close(powers.power(whole, exponent), whole**exponent)
    assert powers.power(whole, -1) is NotImplemented  # an error, in eager
    assert powers.power(SPECIAL, 1.7) is NotImplemented
    assert_close(powers.power(torch.tensor([True, False]), 2), torch.tensor([1, 0]))


@pytest.mark.parametrize("x", [SPECIAL, torch.tensor([-3, 0, 5]), torch.tensor([True, False])])
@pytest.mark.parametrize("number", [0, 2, -1.5, torch.inf])
@pytest.mark.parametrize(
    "rule",
    [
        *arithmetic.SCALAR_ARITHMETIC,
        *(clamp.clamp_by_scalars, sum_mean_prod.mean, division.divide_by_scalar, powers.power_of_scalar),
        *comparisons.SCALAR_COMPARISONS,
    ],
    ids=lambda rule: str(rule.operators[0]),
)
def test_scalar_operands(rule, x: torch.Tensor, number: float) -> None:
    # Computing the reference may itself be an error: of -1 to a negative power, of a bool minus a number.
    for operator in rule.operators:
        arguments = {
            aten.clamp.default: (x, number),
            aten.mean.dim: (x, [0]),
            aten.pow.Scalar: (number, x),
            aten.remainder.Scalar_Tensor: (number, x),
        }.get(operator, (x, number))
        kwargs = {"rounding_mode": "floor"} if "_mode" in str(operator) else {}
        try:
            expected = operator(*arguments, **kwargs)
        except (RuntimeError, ZeroDivisionError):
            continue
        ours = rule(*arguments, **kwargs)
        assert ours is not NotImplemented
        assert_close(ours, expected, equal_nan=True)


def test_scalars_times_alpha() -> None:
    x = torch.tensor([1.0, 2.0])
    assert_close(arithmetic.add(x, 3, alpha=2), torch.add(x, 3, alpha=2))
    assert_close(arithmetic.sub(x, 3, alpha=2), torch.sub(x, 3, alpha=2))
    assert_close(arithmetic.rsub(x, 3, alpha=2), torch.rsub(x, 3, alpha=2))


def test_two_tensors_do_not_match() -> None:
    assert all(rule(SPECIAL, SPECIAL.clone()) is NotImplemented for rule in comparisons.SCALAR_COMPARISONS)
    assert arithmetic.add(SPECIAL, SPECIAL) is NotImplemented


@pytest.mark.parametrize("shifts, dims", [([1], [0]), ([-2, 7], [0, 1]), ([0], [1]), ([5], ()), ([6], [1])])
def test_roll(shifts: list[int], dims: list[int]) -> None:
    x = torch.arange(24).reshape(4, 6)
    assert_close(shapes.roll(x, shifts, dims), torch.roll(x, shifts, dims))


def test_roll_of_nothing_and_of_a_scalar() -> None:
    assert_close(shapes.roll(torch.empty(0, 2), [1], [0]), torch.empty(0, 2))
    assert_close(shapes.roll(torch.tensor(3), [1], [0]), torch.tensor(3))


@pytest.mark.parametrize("dims", [[0], [0, 2], [1], [-1, 0], []])
def test_squeeze(dims: list[int]) -> None:
    x = torch.randn(1, 3, 1)
    assert shapes.squeeze(x, dims).shape == aten.squeeze.dims(x, dims).shape


VIEWS = {
    "as_strided_copy": (torch.randn(4, 6), (3, 2), (6, 2), 1),
    "diagonal_copy": (torch.randn(4, 6), 1),
    "detach_copy": (torch.randn(4),),
    "narrow_copy": (torch.randn(4, 6), 1, 2, 3),
    "permute_copy": (torch.randn(4, 6), (1, 0)),
    "select_copy": (torch.randn(4, 6), -1, 2),
    "slice_copy": (torch.randn(4, 6), 1, 1, 6, 2),
    "split_copy": (torch.randn(4, 6), 4, 1),
    "unbind_copy": (torch.randn(4, 6), 1),
    "view_as_complex_copy": (torch.randn(4, 2),),
    "view_as_real_copy": (torch.randn(4, dtype=torch.complex64),),
    "view_copy": (torch.randn(4, 6), (6, 4)),
}


def test_every_copied_view_has_its_arguments_here() -> None:
    assert {rule.operators[0].overloadpacket.__name__ for rule in copies.COPIES} == set(VIEWS)


@pytest.mark.parametrize("rule", copies.COPIES, ids=lambda rule: str(rule.operators[0]))
def test_copied_views(rule) -> None:
    (operator,) = rule.operators
    arguments = VIEWS[operator.overloadpacket.__name__]
    if operator is aten.view_copy.dtype:
        arguments = (arguments[0], torch.int32)
    assert_close(list(rule(*arguments)), list(operator(*arguments)))


NUMBERS = torch.tensor([[1 + 2j, -3.5, 0.25j], [4 - 1j, -0.5 - 0.5j, 1e-3 + 7j]])
OTHERS = torch.tensor([[2 - 1j, 1j, 3], [-1, 1e20 + 1e20j, 0.5 + 0.25j]])


@pytest.mark.parametrize(
    "rule, arguments",
    [
        (complex_arithmetic.add, (NUMBERS, OTHERS)),
        (complex_arithmetic.add, (NUMBERS, 2j, 3)),
        (complex_arithmetic.add, (NUMBERS.real, OTHERS)),
        (complex_arithmetic.sub, (NUMBERS, OTHERS)),
        (complex_arithmetic.rsub, (NUMBERS, 1.5)),
        (complex_arithmetic.mul, (NUMBERS, 2j)),
        (complex_arithmetic.mul, (NUMBERS.real, 1 - 2j)),
        (complex_arithmetic.mul, (NUMBERS, OTHERS.real)),
        (complex_arithmetic.mul, (NUMBERS.real, OTHERS)),
        (complex_arithmetic.div, (NUMBERS, OTHERS)),
        (complex_arithmetic.div, (NUMBERS, 2.0)),
        (complex_arithmetic.div, (NUMBERS, 1 + 2j)),
        (complex_arithmetic.div, (NUMBERS.real, OTHERS)),
        (complex_arithmetic.reciprocal, (OTHERS,)),
        (
            complex_arithmetic.absolute,
            (torch.cat([NUMBERS, OTHERS, torch.tensor([[0j, complex(math.inf, 1), 3e38 + 3e38j]])]),),
        ),
        (polar_coordinates.angle, (NUMBERS,)),
        (complex_arithmetic.conjugate, (NUMBERS,)),
        (complex_functions.exp, (NUMBERS,)),
        (complex_comparisons.eq, (NUMBERS, 0.25j)),
        (complex_comparisons.eq, (NUMBERS, NUMBERS.clone())),
        (complex_comparisons.ne, (NUMBERS, OTHERS)),
        (complex_reductions.sum_all, (NUMBERS,)),
        (complex_reductions.sum_dim, (NUMBERS, [-1], True)),
        (complex_reductions.mean_dim, (NUMBERS, [0])),
    ],
    ids=lambda each: str(each.operators[0]) if hasattr(each, "operators") else None,
)
def test_complex_numbers(rule, arguments: tuple[Any, ...]) -> None:
    scaled = {"alpha": arguments[2]} if rule is complex_arithmetic.add and len(arguments) > 2 else {}
    given = arguments[:2] if scaled else arguments
    assert_close(rule(*given, **scaled), rule.operators[0].overloadpacket(*given, **scaled).resolve_conj())


def test_complex_numbers_as_real_ones() -> None:
    for dtype in (torch.float32, torch.bool, torch.int64):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the imaginary part is lost
            expected = NUMBERS.to(dtype)
        assert_close(complex_conversions.convert(NUMBERS, dtype=dtype), expected)


def test_real_numbers_do_not_match() -> None:
    x = torch.ones(2, 3)
    for rule in complex_operators.BASIC_ARITHMETIC:
        assert (
            rule(
                *(
                    (x, x)
                    if "a" in inspect.signature(rule.rule).parameters
                    else (x, [0])[: 1 + rule.rule.__name__.endswith("dim")]
                )
            )
            is NotImplemented
        )


def test_unsigned_constants() -> None:
    assert_close(unsigned.full([2], 200, dtype=torch.uint8), torch.full((2,), 200, dtype=torch.uint8))
    assert_close(unsigned.full([], 2**64 - 1, dtype=torch.uint64).view(torch.int64), torch.tensor(-1))
    assert unsigned.full([2], 200, dtype=torch.int32) is NotImplemented
    x = torch.tensor([200, 3], dtype=torch.uint8)
    assert_close(unsigned.right_shift(x, torch.tensor(1, dtype=torch.uint8)), x >> 1)
    assert_close(unsigned.any_element(x), x.any())


@pytest.mark.parametrize("offset", [-1, 0, 2])
@pytest.mark.parametrize("axes", [(0, 1), (2, 0), (-1, -2)])
def test_diagonals(offset: int, axes: tuple[int, int]) -> None:
    x = torch.arange(60.0).reshape(3, 4, 5)
    expected = x.diagonal(offset, *axes)
    assert_close(strided_views.diagonal(x, offset, *axes), expected)
    source = torch.full_like(expected, -1)
    expected = torch.diagonal_scatter(x, source, offset, *axes)
    assert_close(strided_views.diagonal_scatter(x, source, offset, *axes), expected)


@pytest.mark.parametrize("dim, size, step", [(0, 2, 1), (1, 3, 2), (-1, 5, 1), (1, 4, 3)])
def test_windows(dim: int, size: int, step: int) -> None:
    x = torch.arange(60.0).reshape(3, 4, 5)
    assert_close(strided_views.unfold(x, dim, size, step), x.unfold(dim, size, step))


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    "shape, axes",
    [((3, 4), (1,)), ((2, 3, 4), (1,)), ((2, 3, 4), (2,)), ((2, 3, 4), (1, 2)), ((2, 3, 4, 5), (1, 2))],
)
def test_index_put(shape: tuple[int, ...], axes: tuple[int, ...], accumulate: bool) -> None:
    x = torch.randn(shape)
    indices = [torch.tensor([[0, 2], [1, 0]]) if axis in axes else None for axis in range(max(axes) + 1)]
    values = torch.randn(aten.index(x, indices).shape)
    if not accumulate:
        indices = [None if index is None else index[:1, :1] for index in indices]  # no place twice
        values = torch.randn(aten.index(x, indices).shape)
    expected = aten.index_put(x, indices, values, accumulate)
    assert_close(indexing.index_put_of_leading_axes(x, indices, values, accumulate), expected)
    assert_close(indexing.index_put(x, indices, values, accumulate), expected)


def test_index_put_counts_negative_indices_from_the_end() -> None:
    x, indices = torch.zeros(2, 3, 4), [torch.tensor([-1]), None, torch.tensor([-2])]
    expected = aten.index_put(x, indices, torch.ones(()))
    assert_close(indexing.index_put(x, indices, torch.ones(())), expected)
    (first, _, last) = indexing.nonnegative_indices(x, indices)
    assert (first, last) == (torch.tensor([1]), torch.tensor([2]))


def test_index_put_by_a_mask() -> None:
    x = torch.randn(3, 4)
    mask = x > 0
    for values in (torch.randn(int(mask.sum())), torch.ones(()), torch.ones(1)):
        for accumulate in (False, True):
            found = indexing.index_put(x, [mask], values, accumulate)
            assert_close(found, x.index_put((mask,), values, accumulate))
    assert_close(indexing.index_put(x, [x[:, 0] > 9], torch.randn(0, 4)), x)
