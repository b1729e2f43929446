"""Rules of complex operators against eager."""

import inspect
import math
import warnings
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from fx_importer.decompositions.complex import (
    complex_arithmetic,
    complex_comparisons,
    complex_conversions,
    complex_functions,
    complex_operators,
    complex_reductions,
)
from fx_importer.decompositions.special import polar_coordinates

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
