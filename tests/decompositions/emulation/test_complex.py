"""Rules of complex operators against eager."""

import inspect
import math
import warnings
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from fx_importer.decompositions.emulation.complex import (
    arithmetic,
    comparisons,
    functions,
    operators,
    parts,
    reductions,
)
from fx_importer.decompositions.special import trigonometry

NUMBERS = torch.tensor([[1 + 2j, -3.5, 0.25j], [4 - 1j, -0.5 - 0.5j, 1e-3 + 7j]])


OTHERS = torch.tensor([[2 - 1j, 1j, 3], [-1, 1e20 + 1e20j, 0.5 + 0.25j]])


@pytest.mark.parametrize(
    "rule, arguments",
    [
        (arithmetic.add, (NUMBERS, OTHERS)),
        (arithmetic.add, (NUMBERS, 2j, 3)),
        (arithmetic.add, (NUMBERS.real, OTHERS)),
        (arithmetic.sub, (NUMBERS, OTHERS)),
        (arithmetic.rsub, (NUMBERS, 1.5)),
        (arithmetic.mul, (NUMBERS, 2j)),
        (arithmetic.mul, (NUMBERS.real, 1 - 2j)),
        (arithmetic.mul, (NUMBERS, OTHERS.real)),
        (arithmetic.mul, (NUMBERS.real, OTHERS)),
        (arithmetic.div, (NUMBERS, OTHERS)),
        (arithmetic.div, (NUMBERS, 2.0)),
        (arithmetic.div, (NUMBERS, 1 + 2j)),
        (arithmetic.div, (NUMBERS.real, OTHERS)),
        (arithmetic.reciprocal, (OTHERS,)),
        (
            arithmetic.absolute,
            (torch.cat([NUMBERS, OTHERS, torch.tensor([[0j, complex(math.inf, 1), 3e38 + 3e38j]])]),),
        ),
        (trigonometry.angle, (NUMBERS,)),
        (arithmetic.conjugate, (NUMBERS,)),
        (functions.exp, (NUMBERS,)),
        (comparisons.eq, (NUMBERS, 0.25j)),
        (comparisons.eq, (NUMBERS, NUMBERS.clone())),
        (comparisons.ne, (NUMBERS, OTHERS)),
        (reductions.sum_all, (NUMBERS,)),
        (reductions.sum_dim, (NUMBERS, [-1], True)),
        (reductions.mean_dim, (NUMBERS, [0])),
    ],
    ids=lambda each: str(each.operators[0]) if hasattr(each, "operators") else None,
)
def test_complex_numbers(rule, arguments: tuple[Any, ...]) -> None:
    scaled = {"alpha": arguments[2]} if rule is arithmetic.add and len(arguments) > 2 else {}
    given = arguments[:2] if scaled else arguments
    assert_close(rule(*given, **scaled), rule.operators[0].overloadpacket(*given, **scaled).resolve_conj())


def test_complex_numbers_as_real_ones() -> None:
    for dtype in (torch.float32, torch.bool, torch.int64):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the imaginary part is lost
            expected = NUMBERS.to(dtype)
        assert_close(parts.convert(NUMBERS, dtype=dtype), expected)


def test_real_numbers_do_not_match() -> None:
    x = torch.ones(2, 3)
    for rule in operators.BASIC_ARITHMETIC:
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
