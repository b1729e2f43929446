"""Masks as indices in random programs: leading or not, of several axes, empty and full."""

from __future__ import annotations

from typing import Any

import torch

from testing.fuzzing.draw import Draw, Proposal
from testing.fuzzing.program import Ref

ALL = slice(None)


def _masked(draw: Draw, x: Ref) -> tuple[Any, ...]:
    """Return an index of ``x`` with a mask of one or two adjacent axes, and maybe integers in another one."""
    shape = draw[x].shape
    first = draw.rng.randrange(len(shape))
    last = min(len(shape), first + draw.one((1, 1, 2)))
    mask = draw.new(shape[first:last], torch.bool)
    if last == len(shape) and draw.chance(0.3):
        return ..., mask
    index: list[Any] = [ALL] * first + [mask]
    if last < len(shape) and shape[last] and draw.chance(0.3):
        size = shape[last]
        one = draw.new((1,), torch.int64, "indices", size)
        index.append(draw.one((draw.rng.randrange(size), one, slice(0, 1))))
    return tuple(index)


def read(draw: Draw) -> Proposal:
    """Propose the selection of the elements of a mask, whose number depends on data."""
    x = draw.value(least=1, most=4)
    match draw.rng.randrange(5):
        case 0:
            return "torch.masked_select", (x, draw.new(draw[x].shape, torch.bool)), {}
        case 1:
            return "torch.nonzero", (x,), {}
    return "operator.getitem", (x, _masked(draw, x)), {}


def put(draw: Draw) -> Proposal:
    """Propose a functional write where a mask of the leading axes is set."""
    x = draw.value(least=1, most=4)
    shape, dtype = draw[x].shape, draw[x].dtype
    axes = draw.rng.randint(1, len(shape))
    mask = draw.new(shape[:axes], torch.bool)
    value = draw.new(draw.one(((), shape[axes:], (1,) * len(shape[axes:]))), dtype)
    return "torch.index_put", (x, (mask,), value), {"accumulate": draw.chance(0.4)}


def assigned(draw: Draw) -> Proposal:
    """Propose a write into the elements of a mask: of a number, or of a value that broadcasts."""
    x = draw.value(least=1, most=4)
    index = _masked(draw, x)
    value = draw.number(draw[x]) if draw.chance(0.5) else draw.new((), draw[x].dtype)
    return "testing.fuzzing.program.assigned", (x, index, value), {}
