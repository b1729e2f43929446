"""Views, slices, concatenations and creations of random programs."""

from __future__ import annotations

import math
from typing import Any

from testing.fuzzing.draw import MOST_ELEMENTS, Draw, Proposal
from testing.fuzzing.program import Ref


def view(draw: Draw) -> Proposal:
    x = draw.value()
    rank = draw[x].dim()
    kinds = [_unsqueezed, _flattened, _reshaped]
    if rank:
        kinds += [_squeezed, _permuted, _transposed, _expanded, _split_axis, _flipped]
    return draw.one(kinds)(draw, x)


def _unsqueezed(draw: Draw, x: Ref) -> Proposal:
    rank = draw[x].dim()
    return "torch.unsqueeze", (x, draw.rng.randrange(-rank - 1, rank + 1)), {}


def _flattened(draw: Draw, x: Ref) -> Proposal:
    rank = max(draw[x].dim(), 1)
    start = draw.rng.randrange(rank)
    return "torch.flatten", (x, start, draw.rng.randrange(start, rank)), {}


def _reshaped(draw: Draw, x: Ref) -> Proposal:
    shape = draw[x].shape
    if draw.settings.dynamic:
        return "torch.reshape", (x, [*(draw.size(x, i) for i in range(len(shape) - 1)), -1, 1]), {}
    left, sizes = math.prod(shape), []
    while left > 1 and draw.chance(0.7):
        size = draw.one([each for each in range(1, left + 1) if left % each == 0])
        sizes.append(size)
        left //= size
    return "torch.reshape", (x, [*sizes, left]), {}


def _squeezed(draw: Draw, x: Ref) -> Proposal:
    return ("torch.squeeze", (x,), {}) if draw.chance(0.3) else ("torch.squeeze", (x, draw.axis(x)), {})


def _permuted(draw: Draw, x: Ref) -> Proposal:
    axes = [*range(draw[x].dim())]
    draw.rng.shuffle(axes)
    return "torch.permute", (x, axes), {}


def _transposed(draw: Draw, x: Ref) -> Proposal:
    return "torch.transpose", (x, draw.axis(x), draw.axis(x)), {}


def _expanded(draw: Draw, x: Ref) -> Proposal:
    sizes = [draw.one((2, 3)) if size == 1 else -1 for size in draw[x].shape]
    return "torch.Tensor.expand", (x, [*([draw.one((1, 2))] if draw.chance(0.3) else []), *sizes]), {}


def _split_axis(draw: Draw, x: Ref) -> Proposal:
    axis = draw.axis(x)
    return "torch.unflatten", (x, axis, [-1, 1] if draw.settings.dynamic else [1, -1]), {}


def _flipped(draw: Draw, x: Ref) -> Proposal:
    if draw.chance(0.5):
        return "torch.roll", (x, draw.one((1, -1, 2)), draw.axis(x)), {}
    return "torch.flip", (x, draw.some(range(draw[x].dim()))), {}


def part(draw: Draw) -> Proposal:
    x = draw.value(least=1)
    axis = draw.axis(x)
    size = draw[x].shape[axis]
    match draw.rng.randrange(4):
        case 0:
            return "torch.select", (x, axis, draw.rng.randrange(-size, size) if size else 0), {}
        case 1:
            start = draw.rng.randint(0, max(size - 1, 0))
            return "torch.narrow", (x, axis, start, draw.rng.randint(0, max(size - start, 0))), {}
        case 2:
            return _split(draw, x, axis)
    return "operator.getitem", (x, tuple(_slice(draw, each) for each in draw[x].shape)), {}


def _split(draw: Draw, x: Ref, axis: int) -> Proposal:
    kind = draw.rng.randrange(3)
    if kind == 0:
        return "torch.chunk", (x, draw.one((2, 3)), axis), {}
    if kind == 1 and not draw.settings.dynamic:
        return "torch.unbind", (x, axis), {}
    return "torch.split", (x, draw.one((1, 2, 3)), axis), {}


def _slice(draw: Draw, size: int) -> Any:
    match draw.rng.randrange(5):
        case 0 if size:
            return draw.rng.randrange(-size, size)
        case 1:
            return slice(draw.one((0, 1, -2)), None, draw.one((1, 2, 3)))
        case 2:
            return slice(None, draw.one((-1, 2, 100)), draw.one((1, 2)))
        case 3 if draw.chance(0.3):
            return None
    return slice(None, None, None)


def joined(draw: Draw) -> Proposal:
    x = draw.value(least=1)
    y = [ref for ref, each in draw.values.items() if each.shape == draw[x].shape] if draw.chance(0.5) else []
    other = draw.one(y) if y else draw.new(draw[x].shape, draw[x].dtype if draw.chance(0.7) else None)
    parts = draw.one(([x, other], [other, x], [x, other, x], [x, x]))
    return f"torch.{draw.one(('cat', 'cat', 'stack'))}", (parts, draw.axis(x)), {}


def repeated(draw: Draw) -> Proposal:
    x = draw.value(lambda each: each.numel() * 4 < MOST_ELEMENTS, least=1, most=3)
    rank = draw[x].dim()
    if draw.chance(0.4):
        return "torch.repeat_interleave", (x, draw.one((1, 2, 3)), draw.axis(x)), {}
    times = [draw.one((1, 1, 2, 2, 3, *((0,) if draw.chance(0.2) else ()))) for _ in range(rank + draw.chance(0.3))]
    return "torch.Tensor.repeat", (x, times), {}


def made(draw: Draw) -> Proposal:
    x = draw.value()
    match draw.rng.randrange(4):
        case 0 if draw[x].dim():
            return "torch.arange", (draw.size(x, 0),), {"dtype": draw.dtype(lambda dtype: dtype.itemsize > 1)}
        case 1:
            return "torch.full_like", (x, draw.number(draw[x])), {}
        case 2 if draw[x].dim() >= 2:
            return f"torch.{draw.one(('tril', 'triu'))}", (x, draw.one((-1, 0, 1, 2))), {}
    return "torch.full", ([2, 3], draw.number(draw[x])), {"dtype": draw.dtype(lambda dtype: not dtype.is_complex)}


def strided(draw: Draw) -> Proposal:
    x = draw.value(lambda each: each.numel() > 3 and each.is_contiguous(), least=1)
    if draw.settings.dynamic:
        return "torch.diagonal", (draw.value(least=2),), {}
    shape, strides = draw.one((([2, 2], [1, 1]), ([2], [2]), ([2, 2], [0, 1]), ([3], [1])))
    if draw.chance(0.4):
        return "torch.Tensor.unfold", (x, draw.axis(x), 2, draw.one((1, 2))), {}
    return "torch.as_strided", (x, shape, strides, draw.one((0, 1))), {}


def padded(draw: Draw) -> Proposal:
    x = draw.value(least=1, most=4)
    rank = draw[x].dim()
    if draw.chance(0.7):
        count = draw.rng.randint(1, rank)
        pads = [draw.one((0, 1, 2, *((-1,) if draw.chance(0.3) else ()))) for _ in range(2 * count)]
        return "torch.nn.functional.pad", (x, pads), {"value": draw.number(draw[x])}
    mode = draw.one(("reflect", "replicate", "circular"))
    return "torch.nn.functional.pad", (x, [1, 1] * min(max(rank - 1, 1), 2), mode), {}
