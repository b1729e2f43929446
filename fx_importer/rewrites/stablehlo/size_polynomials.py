"""Integers that are known at run time only, as polynomials: so that equal sizes are seen to be equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir

Monomial = tuple[int, ...]
"""A product of atoms, by their numbers in `Atoms`, in order; the empty one is 1."""


@dataclass(frozen=True)
class Integer:
    """A polynomial of atoms, with integers as coefficients. Two that are equal as polynomials are equal."""

    terms: tuple[tuple[Monomial, int], ...]
    """In order of the monomials. No coefficient is 0."""

    @property
    def constant(self) -> int | None:
        """The value, where it is known."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    def __add__(self, other: Integer) -> Integer:
        return _sum([*self.terms, *other.terms])

    def __sub__(self, other: Integer) -> Integer:
        return self + constant(-1) * other

    def __mul__(self, other: Integer) -> Integer:
        return _sum(
            [
                (tuple(sorted((*monomial, *factor))), coefficient * times)
                for monomial, coefficient in self.terms
                for factor, times in other.terms
            ]
        )

    def divided(self, other: Integer) -> Integer | None:
        """Return the quotient by a single term, if it is a polynomial with integers as coefficients."""
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


def constant(value: int) -> Integer:
    return Integer((((), value),) if value else ())


def product(factors: Sequence[Integer]) -> Integer:
    found = constant(1)
    for factor in factors:
        found = found * factor
    return found


def _sum(terms: Sequence[tuple[Monomial, int]]) -> Integer:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    return Integer(tuple(sorted((monomial, found) for monomial, found in total.items() if found)))


@dataclass(frozen=True)
class Extent:
    """The size of a tensor along an axis."""

    value: ir.Value
    axis: int


@dataclass(frozen=True)
class Number:
    """What a ``tensor<i64>`` holds."""

    value: ir.Value


@dataclass(frozen=True)
class Computed:
    """What an operation that polynomials lack makes of integers."""

    name: str
    """``divide`` (towards zero), ``remainder`` (with the sign of the first), ``maximum``, ``minimum``, or
    ``broadcast``: the second if the first is 1, else the first."""
    operands: tuple[Integer, Integer]


Atom = Extent | Number | Computed


class Atoms:
    """The atoms of a function, by number."""

    def __init__(self) -> None:
        self._atoms: list[Atom] = []
        self._numbers: dict[Atom, int] = {}

    def __getitem__(self, number: int) -> Atom:
        return self._atoms[number]

    def integer(self, atom: Atom) -> Integer:
        """Return ``atom`` as an integer."""
        if atom not in self._numbers:
            self._numbers[atom] = len(self._atoms)
            self._atoms.append(atom)
        return Integer((((self._numbers[atom],), 1),))

    def computed(self, name: str, a: Integer, b: Integer) -> Integer:
        """Return what the operation ``name`` of `Computed` makes of ``a`` and ``b``, in simpler terms if there are."""
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
        return self.integer(Computed(name, (a, b)))

    def is_size(self, integer: Integer) -> bool:
        """Whether ``integer`` is known to be 0 or more, as a sum of products of sizes is."""
        return all(
            coefficient > 0 and all(isinstance(self[atom], Extent) for atom in monomial)
            for monomial, coefficient in integer.terms
        )


def _divide(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_FOLDS = {"divide": _divide, "remainder": lambda a, b: a - _divide(a, b) * b, "maximum": max, "minimum": min}
