"""Leaves of nested values with their paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils import _pytree as pytree


def leaves_with_path(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the leaves of ``tree`` with their paths, as `torch.utils._pytree.tree_leaves_with_path` does.

    A class that is registered without a function for its keys (the outputs of diffusers) has the keys of its context if
    that is a list of one key for each child, otherwise indices.
    """
    for inner, value in pytree.tree_leaves_with_path(tree, is_leaf=_has_no_keys):
        if not _has_no_keys(value):
            yield path + inner, value
            continue
        children, context = pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)
        keyed = isinstance(context, list) and len(context) == len(children)
        keys = map(pytree.MappingKey, context) if keyed else map(pytree.SequenceKey, range(len(children)))
        for key, child in zip(keys, children, strict=True):
            yield from leaves_with_path(child, (*path, *inner, key))


def _has_no_keys(node: Any) -> bool:
    registered = pytree.SUPPORTED_NODES.get(type(node))
    return registered is not None and registered.flatten_with_keys_fn is None
