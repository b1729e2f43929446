"""Sizes as polynomials: equality is recognized."""

import pytest

from fx_importer.symbolic.polynomials import Atoms, Computed, Polynomial, constant, product


@pytest.fixture
def atoms() -> Atoms:
    return Atoms()


def unknown(atoms: Atoms, name: str) -> Polynomial:
    return atoms.polynomial(Computed(name, (constant(0), constant(0))))


def test_equal_polynomials_are_equal(atoms):
    a, b = unknown(atoms, "a"), unknown(atoms, "b")
    assert (a + b) * (a - b) == a * a - b * b
    assert a - a == constant(0)
    assert product([constant(2), a, b]) == b * a + a * b
    assert (a - a + constant(3)).constant == 3
    assert (a + constant(3)).constant is None


def test_division(atoms):
    a, b = unknown(atoms, "a"), unknown(atoms, "b")
    assert (a * b * constant(12)).divided(b * constant(4)) == a * constant(3)
    assert (a * constant(6) + constant(9)).divided(constant(3)) == a * constant(2) + constant(3)
    assert (a + constant(1)).divided(a) is None
    assert (a * constant(3)).divided(constant(2)) is None
    assert a.divided(constant(0)) is None
    assert a.divided(a + b) is None


@pytest.mark.parametrize(
    "name, a, b, expected",
    [("divide", -7, 2, -3), ("remainder", -7, 2, -1), ("maximum", 3, 5, 5), ("minimum", 3, 5, 3)],
)
def test_known_operands(atoms, name, a, b, expected):
    assert atoms.computed(name, constant(a), constant(b)) == constant(expected)


def test_broadcasts(atoms):
    a, b, one = unknown(atoms, "a"), unknown(atoms, "b"), constant(1)
    for first, second, expected in [(a, a, a), (a, one, a), (one, a, a), (a, constant(4), constant(4))]:
        assert atoms.computed("broadcast", first, second) == expected
    assert atoms.computed("broadcast", constant(0), one) == constant(0)
    assert atoms.computed("broadcast", a, b) not in (a, b)
