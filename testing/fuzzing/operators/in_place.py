"""Operators that write into their first argument, of random programs with mutation."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from testing.fuzzing.draw import Draw, NothingFits, Proposal, is_real
from testing.fuzzing.operators.indexing import masked, written


def _any(_: Tensor) -> bool:
    return True


def arithmetic(draw: Draw, where: Callable[[Tensor], bool] = _any) -> Proposal:
    """Propose arithmetic in a value for which ``where`` is true."""
    x = draw.value(where)
    name = draw.one(("add_", "sub_", "mul_", "copy_", "maximum", "masked_fill_"))
    other = draw.beside(x) if draw.chance(0.7) else draw.number(draw[x])
    if name == "copy_":
        return "torch.Tensor.copy_", (x, draw.beside(x, is_real)), {}
    if name == "masked_fill_":
        mask = draw.beside(x, lambda each: str(each.dtype) == "torch.bool", same_dtype=0.0)
        return "torch.Tensor.masked_fill_", (x, mask, draw.number(draw[x])), {}
    return f"torch.Tensor.{'add_' if name == 'maximum' else name}", (x, other), {}


def assigned(draw: Draw, where: Callable[[Tensor], bool] = _any) -> Proposal:
    """Propose the assignment of a slice of a value for which ``where`` is true."""
    x = draw.value(lambda each: 0 not in each.shape and where(each), least=1)
    index = [slice(None)] * draw[x].dim()
    axis = draw.rng.randrange(draw[x].dim())
    size = draw[x].shape[axis]
    index[axis] = draw.one((slice(0, 1), slice(-1, None), slice(None, None, 2), draw.rng.randrange(size)))  # type: ignore[call-overload]
    part = draw[x][tuple(index)]
    value = draw.new(part.shape, part.dtype if draw.chance(0.7) else None) if draw.chance(0.6) else draw.number(part)
    return "testing.fuzzing.program.assigned", (x, tuple(index), value), {}


def put(draw: Draw) -> Proposal:
    """Propose writing at indices or where a mask is set: the functional operator's arguments, in place."""
    target, args, kwargs = (written if draw.chance(0.7) else masked)(draw)
    if target == "torch.where":
        raise NothingFits
    return target.replace("torch.", "torch.Tensor.", 1) + "_", args, kwargs


def filled(draw: Draw, where: Callable[[Tensor], bool] = _any) -> Proposal:
    """Propose a fill or a pointwise function in a value for which ``where`` is true."""
    x = draw.value(where)
    match draw.rng.randrange(5):
        case 0:
            return "torch.Tensor.zero_", (x,), {}
        case 1:
            return "torch.Tensor.fill_", (x, draw.number(draw[x])), {}
        case 2:
            return "torch.Tensor.clamp_", (x, 0, 2), {}
        case 3:
            return f"torch.Tensor.{draw.one(('relu_', 'neg_', 'abs_', 'sigmoid_', 'tanh_'))}", (x,), {}
    return "torch.Tensor.detach", (x,), {}
