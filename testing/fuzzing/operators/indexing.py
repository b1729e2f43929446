"""Gathers, scatters, masks and embeddings of random programs."""

from __future__ import annotations

import torch

from testing.fuzzing.draw import Draw, Proposal
from testing.fuzzing.program import Ref


def selected(draw: Draw) -> Proposal:
    x = draw.value(lambda each: 0 not in each.shape, least=1, most=4)
    axis = draw.axis(x)
    size = draw[x].shape[axis]
    match draw.rng.randrange(4):
        case 0:
            return (
                "torch.index_select",
                (x, axis, draw.new((draw.one((1, 2, 3)),), _whole(draw), "natural indices", size)),
                {},
            )
        case 1:
            shape = [
                each if i != axis % draw[x].dim() else draw.one((1, 2, each)) for i, each in enumerate(draw[x].shape)
            ]
            return "torch.gather", (x, axis, draw.new(shape, torch.int64, "natural indices", size)), {}
        case 2:
            shape = draw.shape(1, 2)
            return "torch.take", (x, draw.new(shape, torch.int64, "indices", draw[x].numel())), {}
    return "operator.getitem", (x, tuple(_indices(draw, x, "indices"))), {}


def _whole(draw: Draw) -> torch.dtype:
    return draw.one((torch.int64, torch.int64, torch.int32))


def _indices(draw: Draw, x: Ref, fill: str) -> list[Ref | slice]:
    """Return indices of one or two of the first axes that broadcast with each other; axes between are whole."""
    rank = draw[x].dim()
    axes = sorted(draw.some(range(rank))[:2])
    count = draw.one((1, 2, 3))
    found: list[Ref | slice] = [slice(None)] * (axes[-1] + 1)
    shapes = draw.one((((count,), (count,)), ((2, 1), (count,))))
    for axis, shape in zip(axes, shapes, strict=False):
        found[axis] = draw.new(shape, _whole(draw), fill, draw[x].shape[axis])
    return found


def written(draw: Draw) -> Proposal:
    x = draw.value(lambda each: 0 not in each.shape, least=1, most=3)
    dtype, axis = draw[x].dtype, draw.axis(x)
    size, rank = draw[x].shape[axis], draw[x].dim()
    match draw.rng.randrange(5):
        case 0:
            found = _indices(draw, x, draw.one(("distinct indices", "indices")))
            shape = draw[x][tuple(draw[e] if isinstance(e, Ref) else e for e in found)].shape
            values = draw.new(shape if draw.chance(0.7) else (), dtype)
            given = tuple(e for e in found if isinstance(e, Ref))
            if len(given) != len(found):
                return "torch.index_add", (x, axis, *_rows(draw, x, axis, dtype)), {}
            return "torch.index_put", (x, given, values), {"accumulate": draw.chance(0.5)}
        case 1:
            return f"torch.{draw.one(('index_add', 'index_copy'))}", (x, axis, *_rows(draw, x, axis, dtype)), {}
        case 2:
            where = _rows(draw, x, axis, dtype)[0]
            return "torch.index_fill", (x, axis, where, draw.number(draw[x])), {}
    count = draw.rng.randint(1, size)
    shape = [each if i != axis % rank else count for i, each in enumerate(draw[x].shape)]
    where = draw.new(shape, torch.int64, draw.one(("natural indices", "distinct indices")), size)
    source = draw.new(shape, dtype)
    match draw.rng.randrange(4):
        case 0:
            return "torch.scatter", (x, axis, where, source), {}
        case 1:
            return "torch.scatter", (x, axis, where, draw.number(draw[x])), {}
        case 2:
            return "torch.scatter_add", (x, axis, where, source), {}
    reduce = draw.one(("sum", "prod", "amax", "amin", "mean"))
    return "torch.scatter_reduce", (x, axis, where, source, reduce), {"include_self": draw.chance(0.7)}


def _rows(draw: Draw, x: Ref, axis: int, dtype: torch.dtype) -> tuple[Ref, Ref]:
    """Return indices of an axis and a value with as many rows."""
    rank, size = draw[x].dim(), draw[x].shape[axis]
    count = draw.rng.randint(1, size)
    shape = [each if i != axis % rank else count for i, each in enumerate(draw[x].shape)]
    return draw.new((count,), torch.int64, "distinct indices", size), draw.new(shape, dtype)


def masked(draw: Draw) -> Proposal:
    x = draw.value(least=1, most=4)
    mask = draw.new(draw[x].shape, torch.bool)
    dtype = draw[x].dtype
    match draw.rng.randrange(3):
        case 0:
            return "torch.masked_scatter", (x, mask, draw.new(draw[x].shape, dtype)), {}
        case 1:
            return "torch.index_put", (x, (mask,), draw.new((), dtype)), {}
    return "torch.where", (mask, x, draw.new((), dtype)), {}


def embedded(draw: Draw) -> Proposal:
    rows, width = draw.one((3, 5, 7)), draw.one((1, 2, 4))
    table = draw.new((rows, width), draw.float_dtype())
    if draw.chance(0.4):
        where = draw.new((draw.one((1, 2, 3)), draw.one((1, 3))), torch.int64, "natural indices", rows)
        return "torch.nn.functional.embedding_bag", (where, table), {"mode": draw.one(("sum", "mean", "max"))}
    if draw.chance(0.2):
        return "torch.nn.functional.one_hot", (draw.new(draw.shape(1, 2), torch.int64, "natural indices", 4), 5), {}
    where = draw.new(draw.shape(0, 2), _whole(draw), "natural indices", rows)
    return "torch.nn.functional.embedding", (where, table), {}
