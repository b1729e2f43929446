"""Inputs of random programs: shape, dtype, strides and values, as data."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import torch
from torch import Tensor

LAYOUTS = ("transposed", "every second", "expanded", "offset", "reversed axes")

MASKS = ("normal", "normal", "empty", "full")
"""The kinds of values of bools."""

_SPECIAL = (nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-3, -7.0, 100.0)


@dataclass(frozen=True, eq=False)
class Input:
    """One input."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str
    """``"contiguous"``, or one of `LAYOUTS`."""
    fill: str
    """The kind of values: see `_numbers`."""
    seed: int
    buffer: bool = False
    limit: int = 0
    """For indices: the size of the axis that they index."""
    number: bool = False
    """Whether it is a Python number, of the kind of its dtype."""

    @property
    def differentiable(self) -> bool:
        return self.dtype.is_floating_point and not self.buffer and not self.number

    def tensor(self, sizes: Mapping[int, int], call: int = 0) -> Any:
        """Return the tensor of a call, or the number of all, with the sizes replaced that ``sizes`` has."""
        if self.number:
            (number,) = _numbers(self.fill, 1, self.dtype, random.Random(self.seed), self.limit)
            return sizes.get(number, number) if isinstance(number, int) and self.dtype is torch.int64 else number
        shape = tuple(sizes.get(each, each) for each in self.shape)
        base = self.base(shape, sizes.get(self.limit, self.limit), call)
        return eval(f"base{_view(self.layout, shape)}", {"base": base, "torch": torch})

    def base(self, shape: tuple[int, ...], limit: int, call: int = 0) -> Tensor:
        """Return the contiguous tensor that the input is a view of."""
        base = _base_shape(self.layout, shape)
        count = 1
        for each in base:
            count *= each
        numbers = _numbers(self.fill, count, self.dtype, random.Random(self.seed + call), limit)
        return torch.tensor(numbers, dtype=self.dtype).reshape(base)


def source_of(given: Input) -> str:
    """Return the expression of an input."""
    if given.number:
        return repr(given.tensor({}))
    base = given.base(given.shape, given.limit)
    return f"torch.tensor({base.tolist()}, dtype={given.dtype}).reshape({tuple(base.shape)})" + _view(
        given.layout, given.shape
    )


def layout_for(shape: tuple[int, ...], wanted: str) -> str:
    """Return ``wanted`` if a tensor of ``shape`` can have this layout, or ``"contiguous"``."""
    least = {"transposed": 2, "every second": 1, "expanded": 1, "offset": 1, "reversed axes": 3}
    return wanted if len(shape) >= least.get(wanted, 0) else "contiguous"


def _base_shape(layout: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    match layout:
        case "transposed":
            return (*shape[:-2], shape[-1], shape[-2])
        case "every second":
            return (*shape[:-1], 2 * shape[-1])
        case "expanded":
            return (1, *shape[1:])
        case "offset":
            return (shape[0] + 1, *shape[1:])
        case "reversed axes":
            return shape[::-1]
    return shape


def _view(layout: str, shape: tuple[int, ...]) -> str:
    match layout:
        case "transposed":
            return ".transpose(-1, -2)"
        case "every second":
            return "[..., ::2]"
        case "expanded":
            return f".expand({shape})"
        case "offset":
            return "[1:]"
        case "reversed axes":
            return f".permute({tuple(reversed(range(len(shape))))})"
    return ""


def _numbers(fill: str, count: int, dtype: torch.dtype, rng: random.Random, limit: int) -> list[complex | int | bool]:
    """Return numbers of a kind: indices, a permutation, or such as the dtype has."""
    if fill == "indices":
        return [rng.randrange(-limit, limit) if limit else 0 for _ in range(count)]
    if fill == "natural indices":
        return [rng.randrange(limit) if limit else 0 for _ in range(count)]
    if fill == "distinct indices":
        chosen = list(range(limit))
        rng.shuffle(chosen)
        return [chosen[i % max(limit, 1)] if limit else 0 for i in range(count)]
    if dtype is torch.bool:
        probability = {"empty": 0.0, "full": 1.0}.get(fill, 0.5)
        return [rng.random() < probability for _ in range(count)]
    if dtype.is_complex:
        return [complex(round(rng.gauss(0, 1), 3), round(rng.gauss(0, 1), 3)) for _ in range(count)]
    if dtype.is_floating_point:
        return [_float(fill, rng) for _ in range(count)]
    ends = torch.iinfo(dtype)
    if fill == "special":
        most = (
            ends.min,
            ends.max,
            ends.max - 1,
            0,
            1,
            2,
            3,
            *((-1, -2, ends.min + 1) if ends.min else (ends.max // 2,)),
        )
        return [rng.choice(most) for _ in range(count)]
    return [rng.randrange(-6 if ends.min and fill != "positive" else 1, 9) for _ in range(count)]


def _float(fill: str, rng: random.Random) -> float:
    match fill:
        case "special" if rng.random() < 0.5:
            return rng.choice(_SPECIAL)
        case "positive":
            return round(rng.uniform(0.1, 3.0), 3)
        case "whole":
            return float(rng.randrange(-3, 4))
    return round(rng.gauss(0, 1.5), 3)


def direction(x: Tensor) -> Tensor:
    """Return weights for ``x`` between -1 and 1: multiples of 1/64, which no rounding of the cosine changes."""
    dtype = torch.float64 if x.dtype is torch.float64 else torch.float32
    weights = torch.arange(x.numel(), dtype=dtype).add(1).mul(0.7).cos().mul(64).round().div(64)
    return weights.to(x.dtype).reshape(x.shape)
