"""Choices of a random program: values, shapes, dtypes and numbers, from one seeded source."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from testing.fuzzing.inputs import LAYOUTS, MASKS, Input, layout_for
from testing.fuzzing.program import Ref, Size

T = TypeVar("T")

DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "c64": torch.complex64,
}
NARROW = tuple(name for name in DTYPES if name not in ("f64", "c64"))
"""The dtypes of programs for TOSA."""
SIZES = (1, 2, 3, 3, 4, 5, 7)
MOST_ELEMENTS = 4096
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Settings:
    """What programs may hold."""

    dtypes: tuple[str, ...] = tuple(DTYPES)
    dynamic: bool = False
    mutation: bool = False
    training: bool = False
    quantized: bool = False
    """Whether programs are quantized, and run with state over three calls."""
    special: bool = True
    """Whether inputs may hold NaN, infinities and the ends of integer ranges."""
    most_calls: int = 8


def is_real(x: Tensor) -> bool:
    return not x.is_complex()


def is_float(x: Tensor) -> bool:
    return x.is_floating_point()


def is_integer(x: Tensor) -> bool:
    return not x.is_floating_point() and not x.is_complex() and x.dtype is not torch.bool


class Draw:
    """The values of a program so far, and choices among them. Inputs have the numbers -1, -2, … until the end."""

    def __init__(self, rng: random.Random, settings: Settings):
        self.rng, self.settings = rng, settings
        self.values: dict[Ref, Tensor] = {}
        self.numbers: dict[Ref, float | int | bool] = {}
        self.inputs: list[Input] = []

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def one(self, among: Sequence[T]) -> T:
        return self.rng.choice(among)

    def some(self, among: Sequence[T], least: int = 1) -> list[T]:
        """Return a random non-empty part of ``among`` without repetition."""
        return self.rng.sample(among, self.rng.randint(min(least, len(among)), len(among)))

    def __getitem__(self, ref: Ref) -> Tensor:
        return self.values[ref]

    def dtype(self, where: Callable[[torch.dtype], bool] = lambda _: True) -> torch.dtype:
        """Return a dtype of the settings; the first ones are likelier."""
        found = [DTYPES[name] for name in self.settings.dtypes if where(DTYPES[name])]
        if not found:
            return torch.float32
        return self.one(found[:2]) if self.chance(0.4) else self.one(found)

    def float_dtype(self) -> torch.dtype:
        return self.dtype(lambda dtype: dtype in _FLOATS)

    def shape(self, least: int = 0, most: int = 5) -> tuple[int, ...]:
        """Return a shape of the given ranks; small ones are likelier, and a size is rarely 0."""
        rank = min(most, max(least, self.one((0, 1, 1, 2, 2, 2, 3, 3, 4, 5))))
        sizes = [self.one(SIZES) for _ in range(rank)]
        if sizes and self.chance(0.04) and not self.settings.training:
            sizes[self.rng.randrange(rank)] = 0
        return tuple(sizes)

    def new(
        self,
        shape: Sequence[int],
        dtype: torch.dtype | None = None,
        fill: str = "",
        limit: int = 0,
        layout: str | None = None,
    ) -> Ref:
        """Add an input."""
        dtype = dtype or self.dtype()
        kinds = ("normal", "whole", "positive", *(("special",) * 2 if self.settings.special else ()))
        layout = layout or (layout_for(tuple(shape), self.one(LAYOUTS)) if self.chance(0.2) else "contiguous")
        settings = self.settings
        may_be_state = (settings.mutation or settings.quantized) and not settings.training and not limit
        buffer = may_be_state and self.chance(0.5 if settings.quantized else 0.25)
        fill = fill or self.one(MASKS if dtype is torch.bool else kinds)
        layout = "contiguous" if buffer else layout
        made = Input(tuple(shape), dtype, layout, fill, self.rng.randrange(10**6), buffer, limit)
        self.inputs.append(made)
        ref = Ref(-len(self.inputs))
        self.values[ref] = made.tensor({})
        return ref

    def value(
        self,
        where: Callable[[Tensor], bool] = lambda _: True,
        dtype: Callable[[], torch.dtype] | None = None,
        least: int = 0,
        most: int = 5,
    ) -> Ref:
        """Return a value, late ones likelier, or a new input, of ranks from ``least`` to ``most``."""
        found = [ref for ref, x in self.values.items() if least <= x.dim() <= most and where(x)]
        if found and self.chance(0.85):
            return found[-1] if self.chance(0.5) else self.one(found)
        for _ in range(8):
            ref = self.new(self.shape(least, most), (dtype or self.dtype)())
            if where(self[ref]):
                return ref
            del self.values[ref]
            self.inputs.pop()
        raise NothingFits

    def floating(self, least: int = 0, most: int = 5) -> Ref:
        """Return a value of a floating-point dtype."""
        return self.value(is_float, self.float_dtype, least, most)

    def real(self, least: int = 0, most: int = 5) -> Ref:
        """Return a value that is not complex."""
        return self.value(is_real, lambda: self.dtype(lambda dtype: not dtype.is_complex), least, most)

    def beside(self, ref: Ref, where: Callable[[Tensor], bool] = lambda _: True, same_dtype: float = 0.5) -> Ref:
        """Return a value that broadcasts with ``ref``: of the program, or a new input."""
        x = self[ref]
        found = [r for r, y in self.values.items() if where(y) and _broadcast(x.shape, y.shape)]
        if found and self.chance(0.5):
            return self.one(found)
        shape = [size if self.chance(0.8) else 1 for size in x.shape]
        if shape and self.chance(0.2):
            shape = shape[self.rng.randrange(len(shape)) :]
        for _ in range(8):
            made = self.new(shape, x.dtype if self.chance(same_dtype) else self.dtype())
            if where(self[made]):
                return made
            del self.values[made]
            self.inputs.pop()
        raise NothingFits

    def axis(self, ref: Ref) -> int:
        """Return an axis of a value, counted from either end."""
        rank = max(self[ref].dim(), 1)
        return self.rng.randrange(-rank, rank)

    def size(self, ref: Ref, axis: int) -> int | Size:
        """Return the size of an axis: an expression where sizes are dynamic."""
        return Size(ref, axis) if self.settings.dynamic else self[ref].shape[axis]

    def new_number(self) -> Ref:
        """Add an input that is a Python number."""
        dtype = self.one((torch.int64, torch.float32, torch.bool))
        self.inputs.append(Input((), dtype, "contiguous", "whole", self.rng.randrange(10**6), number=True))
        ref = Ref(-len(self.inputs))
        self.numbers[ref] = self.inputs[-1].tensor({})
        return ref

    def number(self, x: Tensor) -> float | int | bool | Ref:
        """Return a number for an operation with ``x``: one of the program, if it has some, or a constant."""
        if self.numbers and self.chance(0.4):
            return self.one([*self.numbers])
        if is_integer(x):
            ends = torch.iinfo(x.dtype)
            far = (ends.max, ends.min, 2**31, -(2**31) - 1) if self.settings.special and self.chance(0.1) else ()
            return self.one((0, 1, 2, 3, -1, -2, 7, *far, *((0.5, -1.5) if self.chance(0.3) else ())))
        if x.dtype is torch.bool:
            return self.one((True, False, 1, 2, 0.5))
        return self.one((0.5, 1.0, -1.5, 2, -3, 0, 1, 2.0, 0.0, 3.25))


class NothingFits(Exception):
    """The program has no value for the operator, and none can be made."""


Proposal = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A target with its arguments."""
Family = Callable[[Draw], Proposal]
"""Proposes a call of one of some operators. Eager may refuse it: then another one is proposed."""


def _broadcast(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(x in (y, 1) or y == 1 for x, y in zip(reversed(a), reversed(b), strict=False))
