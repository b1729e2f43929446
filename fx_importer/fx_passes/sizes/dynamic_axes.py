"""Reshapes and repeats of tensors with several dynamic dimensions, by merging axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import sympy
from torch import SymInt, fx

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten, prims


def merge_axes(node: fx.Node) -> fx.Node:
    """Return the operand of ``node``, a reshape, with runs of axes merged that have two or more dynamic dimensions.

    The C++ lowerings take a view of ``[?, ?, 4]`` as ``[?, 4]`` to have a second size of 1. ``prims.collapse`` lowers
    correctly.
    """
    x = node.args[0]
    assert isinstance(x, fx.Node)
    old = value_of(x).shape
    if sum(isinstance(size, SymInt) for size in old) < 2:
        return x
    for first, last in reversed(list(_runs(old, value_of(node).shape))):
        if sum(isinstance(size, SymInt) for size in old[first : last + 1]) > 1:
            x = emit(node, prims.collapse.default, x, first, last)
    return x


def _runs(old: Sequence[int | SymInt], new: Sequence[int | SymInt]) -> Iterator[tuple[int, int]]:
    """Yield first and last axis of each shortest run of ``old`` with as many elements as a run of ``new`` axes.

    The total numbers of elements are equal even if their expressions differ: ``n`` and ``2 * (n // 2)``.
    """
    before, after = [_cumulative_sizes(sizes) for sizes in (old, new)]
    first = 0
    for count, product in enumerate(before, start=1):
        if product in after or count == len(before):
            yield first, count - 1
            first = count


def _cumulative_sizes(sizes: Sequence[int | SymInt]) -> list[sympy.Expr]:
    """Return the cumulative products of ``sizes``."""
    return list(
        accumulate((size.node.expr if isinstance(size, SymInt) else sympy.Integer(size) for size in sizes), mul)
    )


def repeat_by_dynamic_count(node: fx.Node) -> fx.Node | None:
    """Rewrite a repeat by a dynamic count of a dynamic dimension, else None."""
    _, repeats = node.args
    assert isinstance(repeats, list | tuple)
    sizes = [1] * (len(repeats) - value_of(node.args[0]).dim()) + list(value_of(node.args[0]).shape)
    pairs = zip(repeats, sizes, strict=True)
    return (
        repeat(node) if any(isinstance(times, fx.Node) and isinstance(size, SymInt) for times, size in pairs) else None
    )


def repeat(node: fx.Node) -> fx.Node:
    """Rewrite a repeat as unsqueeze, expand and collapse."""
    x, repeats = node.args
    assert isinstance(x, fx.Node)
    assert isinstance(repeats, list | tuple)
    for _ in range(len(repeats) - value_of(x).dim()):
        x = emit(node, aten.unsqueeze.default, x, 0)
    for axis in reversed(range(len(repeats))):
        if repeats[axis] != 1:
            beside = emit(node, aten.unsqueeze.default, x, axis)
            stretched: list[Any] = [-1] * (len(repeats) + 1)
            stretched[axis] = repeats[axis]
            x = emit(node, prims.collapse.default, emit(node, aten.expand.default, beside, stretched), axis, axis + 1)
    return x
