"""Flatten nested inputs and rebuild nested outputs, with the pytree specs of the manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fx_importer.errors import UsageError
from fx_importer.fx_graph.tree_paths import leaves_with_path
from fx_importer.manifest import Function

UNKNOWN_TYPE = (
    "that its manifest could not name, or that is not known here: register it with torch under a name, or pass a named "
    "tuple to Manifest.from_json(text, types=[...])"
)


_LEAF_TYPES = frozenset((torch.Tensor, torch.nn.Parameter, bool, int, float, str, type(None)))
"""Types that are never pytree nodes."""


class Flattener:
    """Flattens the inputs of a function, in the order of the manifest.

    Raises:
        UsageError: if the nested inputs have an unknown type.
    """

    def __init__(self, function: Function):
        if function.inputs.spec is None:
            raise UsageError(f"the inputs are of a type {UNKNOWN_TYPE}")
        self._spec = function.inputs.spec
        self._records = function.inputs.leaves
        self._fixed = [(i, record) for i, record in enumerate(self._records) if record.fixed]
        args, kwargs = self._spec.child(0), self._spec.child(1)
        self._order: Sequence[str] = kwargs.context
        children = [spec.child(i) for spec in (args, kwargs) for i in range(spec.num_children)]
        self._positional = args.num_children if all(child.is_leaf() for child in children) else -1
        """The number of positional inputs if no input is nested, else -1."""

    def flat(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Return the inputs in leaf order, unchecked. They are the leaves if each input is one.

        Returns None if the manifest nests an input, or the inputs are passed differently.
        """
        if len(args) != self._positional or len(kwargs) != len(self._order):
            return None
        if not kwargs:
            return args
        named = [kwargs[name] for name in self._order if name in kwargs]
        return (*args, *named) if len(named) == len(kwargs) else None

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return the leaves of the inputs.

        Raises:
            UsageError: if the nesting differs from the export, or a value differs from the one that the export fixed.
        """
        leaves = self.flat(args, kwargs)
        if leaves is None or not all(type(leaf) in _LEAF_TYPES for leaf in leaves):
            leaves = self._nested(args, kwargs)
        for i, record in self._fixed:
            leaf = leaves[i]
            if type(leaf) is not type(record.value) or leaf != record.value:
                raise UsageError(
                    f"the input '{record.path}' is {leaf!r}, but was fixed to {record.value!r} by the export"
                )
        return leaves

    def _nested(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        ordered = {name: kwargs[name] for name in self._order if name in kwargs} | dict(kwargs)
        leaves, spec = pytree.tree_flatten((tuple(args), ordered))
        if spec == self._spec:
            return leaves
        met, wanted = _paths((tuple(args), ordered)), [leaf.path for leaf in self._records]
        if met == wanted:
            raise UsageError(f"the inputs are nested as {spec}, but the program was exported for {self._spec}")
        raise UsageError(
            f"the inputs are {', '.join(met) or 'none'}, but the program was exported for {', '.join(wanted) or 'none'}"
        )


def builder(spec: pytree.TreeSpec) -> Callable[[list[Any]], Any]:
    """Return a function that nests leaves according to ``spec``."""
    if spec.is_leaf():
        return itemgetter(0)
    if spec.type in (tuple, list) and all(spec.child(i).is_leaf() for i in range(spec.num_children)):
        return spec.type
    return lambda leaves: pytree.tree_unflatten(leaves, spec)


def _paths(inputs: tuple[Any, Any]) -> list[str]:
    """Return the paths of the leaves of ``(args, kwargs)`` as in a manifest."""
    roots = ("args", "kwargs")
    return [
        root + pytree.keystr(path)
        for root, tree in zip(roots, inputs, strict=True)
        for path, _ in leaves_with_path(tree)
    ]
