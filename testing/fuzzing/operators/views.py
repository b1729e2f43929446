"""Views of random programs, overlapping ones among them, and writes through views."""

from __future__ import annotations

from torch import Tensor

from testing.fuzzing.draw import Draw, Proposal
from testing.fuzzing.operators import in_place


def alias(draw: Draw) -> Proposal:
    """Propose a view that shares the memory of a value."""
    x = draw.value(least=1, most=4)
    rank, axis = draw[x].dim(), draw.axis(x)
    size = draw[x].shape[axis]
    match draw.rng.randrange(9):
        case 0 if rank == 2:
            return "torch.t", (x,), {}
        case 1 if rank >= 2:
            axes = draw.rng.sample(range(rank), 2)
            return "torch.diagonal", (x, draw.one((0, 0, 1, -1)), *axes), {}
        case 2 if size:
            start = draw.rng.randrange(size)
            return "torch.narrow", (x, axis, start, draw.rng.randint(0, size - start)), {}
        case 3:
            return "torch.Tensor.view", (x, [*(draw.size(x, i) for i in range(rank)), 1]), {}
        case 4:
            return f"torch.{draw.one(('split', 'chunk'))}", (x, draw.one((1, 2)), axis), {}
        case 5:
            return "torch.movedim", (x, axis, draw.axis(x)), {}
        case 6:
            return "torch.Tensor.expand_as", (x, draw.beside(x)), {}
        case 7 if size:
            return "torch.select", (x, axis, draw.rng.randrange(-size, size)), {}
    return "torch.unsqueeze", (x, draw.rng.randrange(-rank - 1, rank + 1)), {}


def overlapping(draw: Draw) -> Proposal:
    """Propose a view whose elements share memory, or that leaves elements of its base out."""
    x = draw.value(lambda value: value.numel() > 3 and value.is_contiguous(), least=1, most=3)
    if draw.settings.dynamic or draw.chance(0.6):
        return "torch.Tensor.unfold", (x, draw.axis(x), draw.one((1, 2, 3)), draw.one((1, 2, 3))), {}
    shape, strides = draw.one((([2, 2], [1, 1]), ([2, 2], [2, 1]), ([2], [2]), ([3], [1]), ([2, 1], [1, 2])))
    return "torch.as_strided", (x, shape, strides, draw.one((0, 1))), {}


def _is_view(value: Tensor) -> bool:
    return value._is_view()


def written(draw: Draw) -> Proposal:
    """Propose a write into a view, which changes its base and its other views."""
    return draw.one((in_place.arithmetic, in_place.assigned, in_place.filled))(draw, _is_view)
