"""Selected elements as tensors of all elements, with a mask of the selected ones."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import SymInt, Tensor, fx
from torch._ops import OpOverload
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.symbol import SymT, symbol_is_type

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten

Size = int | fx.Node


@dataclass(frozen=True, eq=False)
class Selection:
    """The elements that a mask selects: an axis of as many elements as are true."""

    mask: fx.Node
    """The flattened mask, bool [n]."""
    size: Size
    """The number of all elements, n."""
    number: int
    """Equal for equal masks: the value number of the mask."""
    is_prefix: bool = False
    """Whether the selected elements are the first ones."""

    def valid(self, before: fx.Node, axis: int, rank: int) -> fx.Node:
        """Return the mask in a shape that broadcasts to tensors of ``rank`` whose ``axis`` it selects."""
        mask = self.mask
        for _ in range(rank - axis - 1):
            mask = emit(before, aten.unsqueeze.default, mask, -1)
        return mask

    def count(self, before: fx.Node) -> fx.Node:
        """Return the number of selected elements, int64 of rank 0."""
        wide = emit(before, aten._to_copy.default, self.mask, dtype=torch.int64)
        return emit(before, aten.sum.default, wide)

    def places(self, before: fx.Node) -> fx.Node:
        """Return the positions of the selected elements, in order, and then zeros: int64 [n]."""
        position = emit(before, aten.arange.default, self.size, dtype=torch.int64)
        dropped = emit(before, aten.zeros.default, [1], dtype=torch.int64)
        up_to = emit(before, aten.cumsum.default, emit(before, aten._to_copy.default, self.mask, dtype=torch.int64), 0)
        beyond = emit(before, aten.scalar_tensor.default, self.size, dtype=torch.int64)
        rank = emit(before, aten.where.self, self.mask, emit(before, aten.sub.Tensor, up_to, 1), beyond)
        places = emit(before, aten.cat.default, [emit(before, aten.zeros_like.default, position), dropped])
        places = emit(before, aten.index_put.default, places, [rank], position)
        return emit(before, aten.slice.Tensor, places, 0, 0, self.size)


@dataclass(frozen=True)
class Selected:
    """A value with selected axes, computed for all elements: those that are not selected have any value."""

    whole: fx.Node
    selections: Mapping[sympy.Expr, Selection]
    """By the size as the value has it in the program: a symbol, or the size of a slice or concatenation of them."""
    is_position: bool = False
    """Whether each selected element is its own position in a mask of rank 1, as ``nonzero`` returns it."""


class ValueNumbers:
    """Numbers of nodes of a functional graph: two nodes with one number compute the same value."""

    def __init__(self) -> None:
        self._numbers: dict[fx.Node, int] = {}
        self._known: dict[Any, int] = {}

    def of(self, node: fx.Node) -> int:
        """Return the number of ``node``, whose arguments have numbers already."""
        if node not in self._numbers:
            arguments = map_arg((node.args, node.kwargs), self._placeholder)
            key: Any = repr((node.target, arguments)) if _is_deterministic(node) else node
            self._numbers[node] = self._known.setdefault(key, len(self._known))
        return self._numbers[node]

    def derived(self, *key: Any) -> int:
        """Return the number of a value that is computed from values with numbers, as ``key`` describes."""
        return self._known.setdefault(key, len(self._known))

    def _placeholder(self, node: fx.Node) -> Any:
        return f"%{self.of(node)}"


def _is_deterministic(node: fx.Node) -> bool:
    if node.op in ("placeholder", "output"):
        return False
    if node.op == "get_attr" or node.target is operator.getitem:
        return True
    return isinstance(node.target, OpOverload) and torch.Tag.nondeterministic_seeded not in node.target.tags


@dataclass
class Selections:
    """The selected values of a graph, while it is rewritten."""

    selected: dict[fx.Node, Selected] = field(default_factory=dict[fx.Node, Selected])
    sizes: dict[fx.Node, Selection] = field(default_factory=dict[fx.Node, Selection])
    """Numbers of selected elements, which are sizes: results of ``sym_size``."""
    numbers: ValueNumbers = field(default_factory=ValueNumbers)
    prefixes: dict[int, tuple[fx.Node, Selection]] = field(default_factory=dict[int, tuple[fx.Node, Selection]])
    """By the number of a selection: the places of its elements, and as many first elements."""

    def of_mask(self, before: fx.Node, mask: fx.Node) -> Selection:
        """Return the selection by ``mask``, which may be of any rank, and selected itself."""
        inner = self.selected.get(mask)
        number = self.numbers.of(mask)
        if inner is not None:  # a mask of selected elements
            (outer,) = self.axes(mask).values()
            flat = emit(before, aten.logical_and.default, outer.mask, inner.whole)
            return Selection(flat, outer.size, self.numbers.derived("among", number, outer.number))
        if value_of(mask).dim() != 1:
            mask = emit(before, aten.reshape.default, mask, [-1])
        size = value_of(mask).shape[0]
        return Selection(mask, size if isinstance(size, int) else emit(before, aten.sym_size.int, mask, 0), number)

    def whole(self, argument: Any) -> Any:
        """Return ``argument`` with all elements in place of selected ones."""
        return map_arg(argument, lambda node: self.selected[node].whole if node in self.selected else node)

    def whole_shape(self, sizes: Any) -> Any:
        """Return ``sizes`` with the number of all elements in place of numbers of selected ones."""
        return map_arg(sizes, lambda node: self.sizes[node].size if node in self.sizes else node)

    def among(self, arguments: Any) -> Iterator[fx.Node]:
        """Yield the nodes in ``arguments`` that are selected values."""
        return (leaf for leaf in nodes_in(arguments) if leaf in self.selected)

    def axes(self, node: fx.Node) -> dict[int, Selection]:
        """Return the selected axes of ``node``, a tensor; none of a number."""
        return axes_with(value_of(node), self.selected[node].selections) or {} if node in self.selected else {}

    def of_size(self, size: sympy.Expr) -> Selection | None:
        """Return the selection of an axis whose size in the program is ``size``, the last one of several."""
        found = [value.selections[size] for value in self.selected.values() if size in value.selections]
        return found[-1] if found else None

    def joint(self, node: fx.Node) -> dict[sympy.Expr, Selection] | None:
        """Return the selections of the arguments of ``node``; None if one symbol stands for different masks.

        A size is the same whether the selected elements come first or not.
        """
        joint: dict[sympy.Expr, Selection] = {}
        leaves = list(nodes_in((node.args, node.kwargs)))
        for selections in (self.selected[leaf].selections for leaf in leaves if leaf in self.selected):
            for symbol, selection in selections.items():
                if joint.setdefault(symbol, selection).number != selection.number:
                    return None
        for leaf in leaves:
            if leaf in self.sizes:
                selection = self.sizes[leaf]
                known = joint.setdefault(_symbol(value_of(leaf)), selection)
                if expression_of(value_of(known.size)) != expression_of(value_of(selection.size)):
                    return None
        return joint

    def recomputed(self, node: fx.Node, *args: Any, **kwargs: Any) -> Selected | None:
        """Return ``node`` computed for all elements, by the same operator; None if its result has other sizes.

        The caller has checked that no element of the result depends on others along a selected axis. ``args`` and
        ``kwargs`` are the operands with all elements; by default they follow from the arguments of ``node``.
        """
        selections = self.joint(node)
        if selections is None or not _has_axes(value_of(node), selections):
            return None
        args, kwargs = (args, kwargs or dict(node.kwargs)) if args else self.whole((node.args, node.kwargs))
        return self.with_whole(node, emit(node, node.target, *args, **kwargs))  # type: ignore[arg-type]

    def with_whole(self, node: fx.Node, whole: fx.Node) -> Selected | None:
        """Return ``whole`` as all elements of ``node``; None if its sizes are others than along selected axes."""
        selections = self.joint(node)
        values, wholes = tree_leaves(value_of(node)), tree_leaves(value_of(whole))
        if selections is None or len(values) != len(wholes):
            return None
        if not all(_same_sizes(value, all_, selections) for value, all_ in zip(values, wholes, strict=True)):
            return None
        sizes = {expression_of(size) for value in values for size in value.shape}
        return Selected(whole, {size: selections[size] for size in selections if size in sizes})

    def compact(self, before: fx.Node, node: fx.Node) -> bool:
        """Move the selected elements of ``node`` to the front of their axes; return whether any was elsewhere."""
        if not isinstance(value_of(node), Tensor):
            return False
        selected, whole = self.selected[node], self.whole(node)
        selections = dict(selected.selections)
        moved = {axis: selection for axis, selection in self.axes(node).items() if not selection.is_prefix}
        for axis, selection in moved.items():
            places, prefix = self._prefix(before, selection)
            whole = emit(before, aten.index_select.default, whole, axis, places)
            selections[expression_of(value_of(node).shape[axis])] = prefix
        self.selected[node] = Selected(whole, selections, selected.is_position and not moved)
        return bool(moved)

    def _prefix(self, before: fx.Node, selection: Selection) -> tuple[fx.Node, Selection]:
        number = selection.number
        if number not in self.prefixes:
            count = selection.count(before)
            prefix = first_elements(before, selection.size, count, self.numbers.derived("prefix", number))
            self.prefixes[number] = selection.places(before), prefix
        return self.prefixes[number]

    def compacted(self, before: fx.Node, node: fx.Node, axis: int) -> fx.Node:
        """Return the selected elements of ``node`` along ``axis`` first, in order. A single one is repeated."""
        whole, selection = self.whole(node), self.axes(node)[axis]
        places = selection.places(before)
        first = emit(before, aten.slice.Tensor, places, 0, 0, 1)
        is_one = emit(before, aten.eq.Scalar, selection.count(before), 1)
        places = emit(before, aten.where.self, is_one, first, places)
        return emit(before, aten.index_select.default, whole, axis, places)

    def filled(self, before: fx.Node, node: Any, number: float, axes: Iterable[int] | None = None) -> Any:
        """Return all elements of ``node``, with ``number`` for those that are not selected along ``axes`` (all)."""
        whole = self.whole(node)
        if node not in self.selected:
            return whole
        value = value_of(whole)
        for axis, selection in self.axes(node).items():
            if axes is None or axis in axes:
                other = emit(before, aten.full.default, [], number, dtype=value.dtype)
                whole = emit(before, aten.where.self, selection.valid(before, axis, value.dim()), whole, other)
        return whole


def nodes_in(arguments: Any) -> list[fx.Node]:
    """Return the nodes among ``arguments``, in containers too."""
    nodes: list[fx.Node] = []
    map_arg(arguments, nodes.append)
    return nodes


def expression_of(size: int | SymInt) -> Any:
    """Return ``size`` as an expression: an integer also where a symbol has turned out to be one."""
    return size.node.expr if isinstance(size, SymInt) else sympy.Integer(size)


def _symbol(size: int | SymInt) -> Any:
    return size.node.expr if isinstance(size, SymInt) else None


def first_elements(before: fx.Node, size: Size, count: fx.Node, number: int) -> Selection:
    """Return the selection of the first ``count`` of ``size`` elements."""
    position = emit(before, aten.arange.default, size, dtype=torch.int64)
    return Selection(emit(before, aten.lt.Tensor, position, count), size, number, is_prefix=True)


def axes_with(value: Tensor, selections: Mapping[sympy.Expr, Selection]) -> dict[int, Selection] | None:
    """Return the axes of ``value`` whose sizes are those of ``selections``; None if a size is computed from one."""
    axes: dict[int, Selection] = {}
    unknown = {
        symbol for size in selections for symbol in size.free_symbols if symbol_is_type(symbol, SymT.UNBACKED_INT)
    }
    for axis, size in enumerate(value.shape):
        expression = _symbol(size)
        if expression in selections:
            axes[axis] = selections[expression]
        elif expression is not None and expression.free_symbols & unknown:
            return None
    return axes


def _has_axes(value: Any, selections: Mapping[sympy.Expr, Selection]) -> bool:
    """Return whether ``value`` consists of tensors, with no size that is computed from selected ones."""
    leaves = tree_leaves(value)
    return all(isinstance(leaf, Tensor) and axes_with(leaf, selections) is not None for leaf in leaves)


def _same_sizes(value: Tensor, whole: Tensor, selections: Mapping[sympy.Expr, Selection]) -> bool:
    """Return whether ``whole`` has the sizes of ``value`` other than along selected axes."""
    if value.dim() != whole.dim() or value.dtype != whole.dtype:
        return False
    sizes = [*map(expression_of, value.shape)]
    for axis, selection in (axes_with(value, selections) or {}).items():
        sizes[axis] = expression_of(value_of(selection.size))
    return [*map(expression_of, whole.shape)] == sizes
