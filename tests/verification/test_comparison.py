"""Differences of tensors: figures and verdicts."""

import math

import pytest
import torch

from fx_importer.verification import TOLERANCES, Tolerance, compare

NAN, INF = math.nan, math.inf


def tensor(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize("dtype", [*TOLERANCES, torch.int64, torch.uint8, torch.bool])
def test_equal_values_pass_in_every_dtype(dtype):
    value = torch.tensor([0.0, 1.0, 0.5, 2.0]).to(dtype)
    found = compare(value.clone(), value)
    assert found.passed
    assert (found.max_absolute, found.max_relative, found.max_ulp, found.out_of_tolerance) == (0, 0, 0, 0)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_wrong_element_is_found_in_every_dtype(dtype):
    expected = torch.tensor([0.0, 1.0, 0.5, 2.0]).to(dtype)
    actual = torch.tensor([0.0, 1.0, 1.0, 2.0]).to(dtype)
    found = compare(actual, expected)
    assert not found.passed
    assert (found.worst, found.actual, found.expected) == ((2,), 1.0, 0.5)
    assert (found.max_absolute, found.max_relative, found.out_of_tolerance, found.elements) == (0.5, 1.0, 1, 4)


@pytest.mark.parametrize(
    "actual, expected, passes, ulp",
    [
        (tensor(1.0), torch.nextafter(tensor(1.0), tensor(2.0)), True, 1),
        (tensor(-0.0), tensor(0.0), True, 0),
        (tensor(1e-45), tensor(-1e-45), False, 2),
        (tensor(1.0, dtype=torch.bfloat16), tensor(1.0078125, dtype=torch.bfloat16), True, 1),
        # The error of an element is relative to the largest element.
        (tensor(1000.0, 1e-3), tensor(1000.0, 2e-3), True, None),
        (tensor(1.0, 1e-3), tensor(1.0, 2e-3), False, None),
        (tensor(1e-6), tensor(0.0), True, None),
        (tensor(1e-3), tensor(0.0), False, None),
        (tensor(), tensor(), True, 0),
    ],
)
def test_rounding(actual, expected, passes, ulp):
    found = compare(actual, expected)
    assert found.passed == passes
    assert ulp is None or found.max_ulp == ulp


@pytest.mark.parametrize(
    "actual, expected, nans, infinities",
    [
        (tensor(NAN, INF, -INF, 1), tensor(NAN, INF, -INF, 1), True, True),
        (tensor(1, INF), tensor(NAN, INF), False, True),
        (tensor(3.4e38), tensor(INF), True, False),
        (tensor(-INF), tensor(INF), True, False),
        (tensor(NAN), tensor(INF), False, False),
        (torch.tensor([complex(1, NAN)]), torch.tensor([complex(1, 2)]), False, True),
    ],
)
def test_non_finite_values(actual, expected, nans, infinities):
    found = compare(actual, expected)
    assert (found.nan_positions_equal, found.infinities_equal) == (nans, infinities)
    assert found.passed == (nans and infinities)
    assert found.out_of_tolerance == (not found.passed)


@pytest.mark.parametrize("actual", [tensor(1, 2).int(), tensor(1), torch.tensor([[1.0, 2.0]]), 1.0])
def test_another_type_is_reported(actual):
    found = compare(actual, tensor(1, 2))
    assert not found.passed
    assert "eager has" in found.problem


@pytest.mark.parametrize(
    "actual, expected, passes",
    [
        (1, 1, True),
        (1, 2, False),
        (True, 1, False),
        (1.0, 1.0 + 1e-6, True),
        (1.0, 1.1, False),
        (INF, INF, True),
        (NAN, NAN, True),
        (None, None, True),
        ("a", "b", False),
    ],
)
def test_non_tensors(actual, expected, passes):
    assert compare(actual, expected).passed == passes


def test_integers_are_compared_exactly():
    found = compare(torch.tensor([[1, 2], [3, 9]]), torch.tensor([[1, 2], [3, 4]]), Tolerance(1.0, 10.0))
    assert (found.out_of_tolerance, found.worst, found.max_absolute) == (1, (1, 1), 5.0)


def test_given_tolerances_are_absolute():
    actual, expected = tensor(1000.0, 0.011), tensor(1000.0, 0.01)
    assert compare(actual, expected).passed
    assert not compare(actual, expected, Tolerance(atol=1e-5)).passed
    assert compare(actual, expected, Tolerance(rtol=0.2, atol=0.0)).passed
    assert not compare(tensor(1.0), torch.nextafter(tensor(1.0), tensor(2.0)), Tolerance(0.0, 0.0)).passed
