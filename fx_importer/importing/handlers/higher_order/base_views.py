"""Views of ``auto_functionalized_v2``: the whole base, a slice of it, or sizes, strides and an offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg

from fx_importer.fx_graph.operators import aten
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.mlir.bindings import ir


@dataclass(frozen=True)
class BaseView:
    """A view of a base that an operator mutates."""

    base: int
    """The index of the base."""
    example: Tensor
    covers: Callable[[], Tensor | None]
    """Return the row-major positions of its elements in the base; None if they are symbolic."""
    read: Callable[[ir.Value, NodeBuilder], ir.Value]
    """Return the value of the view, given the value of its base."""
    write: Callable[[ir.Value, ir.Value, NodeBuilder], ir.Value]
    """Return the new value of the base, given its value and the new value of the view."""


def read_view(prefix: str, kwargs: dict[str, Any], bases: Sequence[fx.Node], build: NodeBuilder) -> BaseView | None:
    """Pop the description of a view from ``kwargs``. Return None if the argument is None.

    Raises:
        UnsupportedNodeError: for strides that cannot be written back.
    """
    index = kwargs.pop(f"{prefix}_base_index")
    if index is None:
        return None
    base = build.example(bases[index])
    if f"{prefix}_slice_dim" in kwargs:
        return _slice(index, base, [kwargs.pop(f"{prefix}_slice_{part}") for part in ("dim", "start", "end")], build)
    if f"{prefix}_size" in kwargs:
        size, stride = kwargs.pop(f"{prefix}_size"), kwargs.pop(f"{prefix}_stride")
        return _strided(index, base, size, stride, kwargs.pop(f"{prefix}_storage_offset"))
    kwargs.pop(f"{prefix}_alias", None)
    return BaseView(index, base, lambda: _elements(base), lambda value, _: value, lambda _, new, __: new)


def _slice(index: int, base: Tensor, bounds: list[Any], build: NodeBuilder) -> BaseView:
    dim, start, end = map_arg(bounds, build.example)
    example = aten.slice.Tensor(base, dim, start, end)

    def operands(build: NodeBuilder) -> list[ir.Value]:
        return build.values([*bounds, 1])

    def read(value: ir.Value, build: NodeBuilder) -> ir.Value:
        return build.op("torch.aten.slice.Tensor", [build.types.of(example)], [value, *operands(build)]).result

    def write(value: ir.Value, new: ir.Value, build: NodeBuilder) -> ir.Value:
        return build.op("torch.aten.slice_scatter", [value.type], [value, new, *operands(build)]).result

    def covers() -> Tensor | None:
        elements = _elements(base) if all(type(bound) is int for bound in (dim, start, end)) else None
        return None if elements is None else aten.slice.Tensor(elements, dim, start, end)

    return BaseView(index, example, covers, read, write)


def _strided(index: int, base: Tensor, size: Any, stride: Any, offset: Any) -> BaseView:
    """Return a view that reads and writes elements by position. Sizes, strides and offset must be static."""
    if not all(type(number) is int for number in (*size, *stride, offset)) or not _is_static(base):
        raise UnsupportedNodeError(
            "it writes to a view whose strides are symbolic: pass it a slice along one axis, or a copy"
        )
    positions = _in_memory(base).as_strided(size, stride, offset)
    if positions.unique().numel() != positions.numel() or int(positions.min()) < 0:
        raise UnsupportedNodeError("it writes to a view whose elements overlap in memory: pass it a copy")
    example = base.new_empty(size)

    def flat(value: ir.Value, build: NodeBuilder) -> tuple[ir.Value, ir.Value]:
        type_ = build.types.tensor(base.dtype, (base.numel(),))
        shape = build.list_of([build.constant(-1)])
        places = build.list_of([build.literal(positions)])
        return build.op("torch.aten.reshape", [type_], [value, shape]).result, places

    def read(value: ir.Value, build: NodeBuilder) -> ir.Value:
        return build.op("torch.aten.index.Tensor", [build.types.of(example)], flat(value, build)).result

    def write(value: ir.Value, new: ir.Value, build: NodeBuilder) -> ir.Value:
        vector, places = flat(value, build)
        operands = [vector, places, new, build.constant(False)]
        written = build.op("torch.aten.index_put", [vector.type], operands).result
        shape = build.list_of(build.values(base.shape), build.types.parse("!torch.list<int>"))
        return build.op("torch.aten.reshape", [value.type], [written, shape]).result

    return BaseView(index, example, lambda: positions, read, write)


def _is_static(tensor: Tensor) -> bool:
    return all(type(size) is int for size in (*tensor.shape, *tensor.stride(), tensor.storage_offset()))


def _elements(base: Tensor) -> Tensor | None:
    """Return the row-major position of each element, in the shape of ``base``; None if the shape is symbolic."""
    return torch.arange(base.numel()).reshape(base.shape) if _is_static(base) else None


def _in_memory(base: Tensor) -> Tensor:
    """Return the memory of ``base`` with each element's row-major position, and -1 in gaps."""
    last = base.storage_offset() + sum((n - 1) * s for n, s in zip(base.shape, base.stride(), strict=True))
    memory = torch.full((last + 1,), -1)
    elements = torch.arange(base.numel()).reshape(base.shape)
    memory.as_strided(base.shape, base.stride(), base.storage_offset()).copy_(elements)
    return memory
