"""Functional call of an operator that mutates views: they are read from their bases and written back."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fx_importer.importing.handlers.higher_order.auto_functionalized import call_functionally, operator_of, written_by
from fx_importer.importing.handlers.higher_order.base_views import BaseView, read_view
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.value_map import Results


def import_auto_functionalized_v2(node: fx.Node, build: NodeBuilder) -> Results:
    """Import ``auto_functionalized_v2(operator, **arguments, _all_bases=[...], _x_base_index=0, …)``, which returns the
    operator's results, then the new value of each base.

    Raises:
        UnsupportedNodeError: if two mutated arguments share memory, or a view cannot be written back.
    """
    overload = operator_of(node)
    kwargs: dict[str, Any] = dict(node.kwargs)
    nodes = kwargs.pop("_all_bases")
    kwargs.pop("_only_clone_these_bases", None)
    views = {name: _views(f"_{name}", kwargs, nodes, build) for name in written_by(overload)}
    flat = [view for entry in views.values() for view in (entry if isinstance(entry, list) else [entry]) if view]
    _check_apart(flat)
    bases = build.values(nodes)
    arguments = {name: _each(view, lambda entry: entry.read(bases[entry.base], build)) for name, view in views.items()}
    examples = {name: _each(view, lambda entry: entry.example) for name, view in views.items()}
    own, new = call_functionally(node, overload, {**kwargs, **arguments}, examples, build)
    for name, listed in views.items():
        pairs = zip(listed, new[name], strict=True) if isinstance(listed, list) else [(listed, new[name])]
        for view, value in pairs:
            if view is not None:
                bases[view.base] = view.write(bases[view.base], value, build)
    return [*own, *bases]


def _views(prefix: str, kwargs: dict[str, Any], bases: list[fx.Node], build: NodeBuilder) -> Any:
    """Pop the description of an argument from ``kwargs``. Return its view, a list of views, or None."""
    if f"{prefix}_length" not in kwargs:
        return read_view(prefix, kwargs, bases, build)
    length = kwargs.pop(f"{prefix}_length")
    return None if length is None else [read_view(f"{prefix}_{i}", kwargs, bases, build) for i in range(length)]


def _each(views: Any, function: Any) -> Any:
    if isinstance(views, list):
        return [_each(view, function) for view in views]
    return None if views is None else function(views)


def _check_apart(views: list[BaseView]) -> None:
    """Raise `UnsupportedNodeError` if two views overlap, or may overlap, in a base."""
    for index, view in enumerate(views):
        for other in views[:index]:
            if view.base == other.base and _may_share(view, other):
                raise UnsupportedNodeError(
                    "two arguments that it writes to may share memory: pass it a copy of one of them"
                )


def _may_share(view: BaseView, other: BaseView) -> bool:
    ours, theirs = view.covers(), other.covers()
    return ours is None or theirs is None or bool(torch.isin(ours, theirs).any())
