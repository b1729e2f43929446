"""Rules of elementwise operators against eager, on values where a formula goes wrong."""

import pytest
import torch
from torch.testing import assert_close

from fx_importer.decompositions.elementwise import arithmetic, clamp, comparisons, division, powers
from fx_importer.decompositions.emulation import unsigned
from fx_importer.decompositions.reduction import sum_mean_prod

aten = torch.ops.aten


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


def test_unsigned_constants() -> None:
    assert_close(unsigned.full([2], 200, dtype=torch.uint8), torch.full((2,), 200, dtype=torch.uint8))
    assert_close(unsigned.full([], 2**64 - 1, dtype=torch.uint64).view(torch.int64), torch.tensor(-1))
    assert unsigned.full([2], 200, dtype=torch.int32) is NotImplemented
    x = torch.tensor([200, 3], dtype=torch.uint8)
    assert_close(unsigned.right_shift(x, torch.tensor(1, dtype=torch.uint8)), x >> 1)
    assert_close(unsigned.any_element(x), x.any())
