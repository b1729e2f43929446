"""Symbolic sizes as polynomials with integer coefficients: equal sizes compare equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir

Monomial = tuple[int, ...]
"""A product of atoms, as their sorted indices in `Atoms`; the empty one is 1."""


@dataclass(frozen=True)
class Polynomial:
    """A polynomial of atoms with integer coefficients. Equal polynomials compare equal."""

    terms: tuple[tuple[Monomial, int], ...]
    """Sorted by monomial. No coefficient is 0."""

    @property
    def constant(self) -> int | None:
        """The value of a constant polynomial; None for any other."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    def __add__(self, other: Polynomial) -> Polynomial:
        return _sum([*self.terms, *other.terms])

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + constant(-1) * other

    def __mul__(self, other: Polynomial) -> Polynomial:
        return _sum(
            [
                (tuple(sorted((*monomial, *factor))), coefficient * times)
                for monomial, coefficient in self.terms
                for factor, times in other.terms
            ]
        )

    def divided(self, other: Polynomial) -> Polynomial | None:
        """Return the quotient by a polynomial of one term, if it has integer coefficients."""
        if len(other.terms) != 1:
            return None
        divisor, by = other.terms[0]
        terms: list[tuple[Monomial, int]] = []
        for monomial, coefficient in self.terms:
            left = list(monomial)
            for atom in divisor:
                if atom not in left:
                    return None
                left.remove(atom)
            if coefficient % by:
                return None
            terms.append((tuple(left), coefficient // by))
        return _sum(terms)


def constant(value: int) -> Polynomial:
    """Return the polynomial that is ``value``."""
    return Polynomial((((), value),) if value else ())


def product(factors: Sequence[Polynomial]) -> Polynomial:
    """Return the product of ``factors``."""
    total = constant(1)
    for factor in factors:
        total = total * factor
    return total


def _sum(terms: Sequence[tuple[Monomial, int]]) -> Polynomial:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    return Polynomial(tuple(sorted((monomial, factor) for monomial, factor in total.items() if factor)))


@dataclass(frozen=True)
class DimensionSize:
    """The size of a tensor along an axis."""

    value: ir.Value
    axis: int


@dataclass(frozen=True)
class ScalarTensor:
    """The element of a ``tensor<i64>``."""

    value: ir.Value


@dataclass(frozen=True)
class Computed:
    """The result of an operation that polynomials do not have."""

    name: str
    """``divide`` (towards zero), ``remainder`` (with the sign of the first), ``maximum``, ``minimum``, or
    ``broadcast``: the second if the first is 1, else the first."""
    operands: tuple[Polynomial, Polynomial]


Atom = DimensionSize | ScalarTensor | Computed


class Atoms:
    """The atoms of a function, by index: sizes, scalars and computed integers that no polynomial simplifies."""

    def __init__(self) -> None:
        self._atoms: list[Atom] = []
        self._indices: dict[Atom, int] = {}

    def __getitem__(self, index: int) -> Atom:
        return self._atoms[index]

    def polynomial(self, atom: Atom) -> Polynomial:
        """Return ``atom`` as a polynomial."""
        if atom not in self._indices:
            self._indices[atom] = len(self._atoms)
            self._atoms.append(atom)
        return Polynomial((((self._indices[atom],), 1),))

    def computed(self, name: str, a: Polynomial, b: Polynomial) -> Polynomial:
        """Return the result of the operation ``name`` of `Computed` on ``a`` and ``b``, simplified where possible."""
        if name == "divide" and (exact := a.divided(b)) is not None:
            return exact
        if name == "broadcast" and (a == b or b.constant == 1 or a.constant not in (None, 1)):
            return a
        if name == "broadcast" and (a.constant == 1 or b.constant is not None):
            return b
        if name in ("maximum", "minimum") and a == b:
            return a
        if a.constant is not None and b.constant is not None and (known := _FOLDS.get(name)) and b.constant:
            return constant(known(a.constant, b.constant))
        return self.polynomial(Computed(name, (a, b)))

    def is_size(self, value: Polynomial) -> bool:
        """Whether ``value`` is provably not negative: a sum of products of dimension sizes."""
        return all(
            coefficient > 0 and all(isinstance(self[atom], DimensionSize) for atom in monomial)
            for monomial, coefficient in value.terms
        )


def _divide(a: int, b: int) -> int:
    """Return the quotient rounded towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_FOLDS = {"divide": _divide, "remainder": lambda a, b: a - _divide(a, b) * b, "maximum": max, "minimum": min}
