"""Check input sizes against the export: ranges, divisibility, equal sizes, and guards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from fx_importer.errors import UsageError
from fx_importer.manifest import Function
from fx_importer.symbolic.expressions import LinearSize, SizeExpression

_SPECIALIZED = 2
"""torch.export assumes sizes of at least 2; smaller sizes are accepted where no guard excludes them."""

_ANONYMOUS = re.compile(r"[su]\d+")
"""Symbols that torch named."""


class SizeChecks:
    """Size checks for the inputs of a function, prepared once.

    Sizes and guards are not checked if they use a symbol in which no input size is linear.
    """

    def __init__(self, function: Function):
        self._symbols = function.symbols
        self._linear: list[_Linear] = []
        self._computed: list[tuple[_Size, SizeExpression]] = []
        self._guards = [SizeExpression(text) for text in function.guards]
        self._lines = function.guard_lines
        for size, declared in _dynamic_sizes(function):
            if (form := LinearSize.read(declared)) is not None:
                self._linear.append(_Linear(size, form))
            else:
                with suppress(ValueError):  # torch-specific functions such as Mod
                    self._computed.append((size, SizeExpression(declared)))

    def __call__(self, leaves: Sequence[Any]) -> None:
        """Raise `UsageError` listing every size in ``leaves``, the flat inputs, that the export does not accept."""
        met: dict[str, tuple[int, _Linear]] = {}
        mismatches: list[str] = []
        for equation in self._linear:
            size = equation.size.of(leaves)
            if size is not None and (reason := equation.mismatch(size, self._symbols, met)):
                mismatches.append(f"{equation.size.described(size)}, but the program was exported for {reason}")
        if mismatches := mismatches or list(self._unfulfilled(leaves, met)):
            raise UsageError("; ".join(mismatches))

    def _unfulfilled(self, leaves: Sequence[Any], met: Mapping[str, tuple[int, _Linear]]) -> Iterator[str]:
        """Yield the conditions that the sizes violate, given the value of each symbol."""
        sizes = {symbol: number for symbol, (number, _) in met.items()}
        names = {symbol: linear.name for symbol, (_, linear) in met.items()}
        for size, expression in self._computed:
            size_ = size.of(leaves)
            if size_ is not None and expression.symbols <= sizes.keys() and expression.value(sizes) != size_:
                declared = expression.described(names)
                yield f"{size.described(size_)}, but the program was exported for {declared}, {expression.value(sizes)}"
        broken = [guard for guard in self._guards if guard.symbols <= sizes.keys() and not guard.value(sizes)]
        for guard in broken:
            if line := self._lines.get(guard.text):
                spelled = {symbol: name if _ANONYMOUS.fullmatch(symbol) else symbol for symbol, name in names.items()}
                values = " and ".join(
                    f"{names[symbol]} is {sizes[symbol]}" for symbol in sizes if symbol in guard.symbols
                )
                yield f"the program was exported for {guard.described(spelled)}: {line} depends on it; but {values}"
        broken = [guard for guard in broken if guard.text not in self._lines]
        if broken:
            conditions = " and ".join(guard.described(names) for guard in broken)
            symbols = sorted({symbol for guard in broken for symbol in guard.symbols}, key=list(sizes).index)
            values = ", ".join(f"{names[symbol]} is {sizes[symbol]}" for symbol in symbols)
            yield f"the program was exported for sizes with {conditions}, but {values}"


@dataclass(frozen=True)
class _Size:
    """The size of an input along an axis."""

    leaf: int
    rank: int
    axis: int
    path: str

    def of(self, leaves: Sequence[Any]) -> int | None:
        """Return the size; None unless the value is a tensor of that rank, a mismatch that the backend reports."""
        value = leaves[self.leaf]
        return value.shape[self.axis] if isinstance(value, torch.Tensor) and value.dim() == self.rank else None

    def described(self, size: int) -> str:
        return f"the input '{self.path}' has size {size} along axis {self.axis}"


@dataclass(frozen=True)
class _Linear:
    """A size of an input that is linear in a symbol."""

    size: _Size
    form: LinearSize

    @property
    def name(self) -> str:
        """The symbol, expressed by this size."""
        name = f"{self.size.path}.shape[{self.size.axis}]"
        factor, offset = self.form.factor, self.form.offset
        name = f"({name} - {offset})".replace("- -", "+ ") if offset else name
        return f"({name} // {factor})" if factor != 1 else name

    def mismatch(
        self, size: int, symbols: Mapping[str, tuple[int, int | None]], met: dict[str, tuple[int, _Linear]]
    ) -> str | None:
        """Return the accepted sizes; None if ``size`` is one. ``met`` has the symbols so far, and their sizes."""
        form, factor, offset = self.form, self.form.factor, self.form.offset
        number = form.solve(size)
        if number is None:
            return f"a multiple of {factor}" + (f" {'-' if offset < 0 else '+'} {abs(offset)}" if offset else "")
        least, greatest = symbols.get(form.symbol, (0, None))
        if (number < least and least > _SPECIALIZED) or (greatest is not None and number > greatest):
            if greatest is None:
                return f"sizes of at least {form.of(least)}"
            return f"sizes from {form.of(least)} to {form.of(greatest)}"
        known, first = met.setdefault(form.symbol, (number, self))
        if known != number:
            elsewhere = f"'{first.size.path}' along axis {first.size.axis}"
            return f"{form.of(known)} there, by the size of {elsewhere}"
        return None


def _dynamic_sizes(function: Function) -> Iterator[tuple[_Size, str]]:
    for leaf, record in enumerate(function.inputs.leaves):
        shape = (record.type.shape if record.type is not None else None) or ()
        for axis, declared in enumerate(shape):
            if isinstance(declared, str):
                yield _Size(leaf, len(shape), axis, record.path), declared
