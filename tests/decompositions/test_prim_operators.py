"""Rules of ``prims`` operators agree with eager's implementations, in values, dtypes and shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fx_importer.decompositions.elementwise.prim_operators import PRIMS
from tests.e2e.harness import integers, normal

X, Y = normal(3, 4).sigmoid(), normal(3, 4, seed=2).sigmoid()
K, L = integers(3, 4, low=-9, high=9), integers(3, 4, low=1, high=5, seed=2)
OPERANDS: dict[str, tuple[Any, ...]] = {
    "where": (X > 0.5, X, Y),
    "transpose": (X, [1, 0]),
    "rev": (X, [0]),
    "cat": ([X, Y], 0),
    "reshape": (X, [2, 6]),
    "broadcast_in_dim": (X, [2, 3, 4], [1, 2]),
    "amax": (X, [1]),
    "amin": (X, [0]),
    "sum": (X, [0, 1]),
    "acosh": (X + 2,),
    "zeta": (X + 2, Y),
    "real": (torch.complex(X, Y),),
    "imag": (torch.complex(X, Y),),
}
INTEGERS = ("bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "shift_left", "shift_right_arithmetic")
NAMED = {rule.operators[0]._schema.name.removeprefix("prims::"): rule for rule in PRIMS}


@pytest.mark.parametrize("name", [name for name in NAMED if name != "scalar_tensor"])
def test_rule_agrees_with_eager(name: str) -> None:
    operator = NAMED[name].operators[0]
    needed = [each for each in operator._schema.arguments if not each.kwarg_only and not each.has_default_value()]
    operands = OPERANDS.get(name) or ((K, L) if name in INTEGERS else (X, Y))[: len(needed)]
    torch.testing.assert_close(NAMED[name](*operands), operator(*operands))


def test_division_of_integers_truncates() -> None:
    assert torch.equal(NAMED["div"](K, L), NAMED["div"].operators[0](K, L))
