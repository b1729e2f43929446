"""Facts of a program about a call of an operator: the conditions by which the table of kept operators has its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


def tensors_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors among the arguments of a call."""
    return [leaf for leaf in pytree.tree_leaves((tuple(args), dict(kwargs))) if isinstance(leaf, Tensor)]


def conditions_of(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a program says about a call: its dtypes, its strings, masks, ranks of zero, and empty tensors.

    ``("float32", "approximate='tanh'")``. The first is the dtype of the first tensor, with those of others that differ.
    """
    tensors = tensors_of(args, kwargs)
    dtypes = list(dict.fromkeys(str(tensor.dtype).removeprefix("torch.") for tensor in tensors))
    names = [argument.name for argument in operator._schema.arguments]
    named = {**dict(zip(names, args, strict=False)), **kwargs}
    conditions = [",".join(dtypes) or "no tensor"]
    conditions += [f"{name}={value!r}" for name, value in named.items() if isinstance(value, str)]
    if any(type(size) is int and size == 0 for tensor in tensors for size in tensor.shape):
        conditions.append("empty")
    if any(_is_mask(value) for name, value in named.items() if name == "indices"):
        conditions.append("mask")
    return tuple(conditions)


def has_dynamic_sizes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a tensor among the arguments has a size that is not a number."""
    return any(type(size) is not int for tensor in tensors_of(args, kwargs) for size in tensor.shape)


def _is_mask(indices: Any) -> bool:
    leaves = pytree.tree_leaves(indices)
    return any(isinstance(leaf, Tensor) and leaf.dtype in (torch.bool, torch.uint8) for leaf in leaves)


def argument_text(value: Any) -> str:
    """Return arguments as text, with a tensor as its dtype and shape."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, dict):
        return ", ".join(f"{key}={argument_text(item)}" for key, item in value.items())
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(argument_text, value)) + ")"
    return repr(value)
