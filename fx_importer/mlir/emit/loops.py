"""Emitting loops over builtin tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.indexing_maps import loop_of

if TYPE_CHECKING:
    from typing_extensions import Self

Body = Callable[["LoopEmitter", ir.Value, Sequence[ir.Value]], Sequence[ir.Value]]
"""Emits a loop body: takes an emitter inside the loop, the induction variable and the iter_args; returns new ones."""


class LoopEmitter(LinalgOps):
    """Emits loops and their iter_args."""

    def expand_leading_axis(self, tensor: ir.Value) -> ir.Value:
        """Emit ``tensor.expand_shape``: ``tensor`` with a leading axis of size 1."""
        sizes: list[Size] = [1, *self.sizes(tensor)]
        return self.expand_shape(tensor, _leading_axis_groups(len(sizes)), sizes)

    def collapse_leading_axis(self, tensor: ir.Value) -> ir.Value:
        """Emit ``tensor.collapse_shape``: ``tensor`` without its leading axis, of size 1."""
        _, *shape = self.shape(tensor)
        result = self.tensor(shape, ir.RankedTensorType(tensor.type).element_type)
        return self.collapse_shape(tensor, _leading_axis_groups(1 + len(shape)), result)

    def extract_from_leading_axis(self, tensor: ir.Value) -> ir.Value:
        """Emit ``tensor.extract_slice``: a slice of ``tensor`` without its leading axis, of size 1."""
        sizes = self.sizes(tensor)
        return self.extract_slice(tensor, [0] * len(sizes), sizes, range(1, len(sizes)))

    def insert_into_leading_axis(self, part: ir.Value, tensor: ir.Value) -> ir.Value:
        """Emit ``tensor.insert_slice``: ``tensor``, whose leading axis has size 1, with ``part`` as all it holds."""
        sizes = self.sizes(tensor)
        return self.insert_slice(part, tensor, [0] * len(sizes), sizes)

    def loop(
        self,
        low: Size,
        high: Size,
        step: Size,
        state: Sequence[ir.Value],
        body: Body,
        attributes: Mapping[str, ir.Attribute] = MappingProxyType({}),
    ) -> list[ir.Value]:
        """Emit ``scf.for`` with ``state`` as its iter_args; return its results."""
        bounds = [self.index(bound) for bound in (low, high, step)]
        types = [value.type for value in state]
        op = self.op("scf.for", types, [*bounds, *state], dict(attributes), regions=1)
        arguments = [ir.IndexType.get(self.context), *types]
        block = self.add_block(op.regions[0], arguments)
        inside = self.inside(block)
        counter, *carried = block.arguments
        inside.op("scf.yield", [], body(inside, counter, carried))
        return list(op.results)

    def parallel_loop(self, count: Size, attributes: Mapping[str, ir.Attribute]) -> tuple[Self, ir.Value]:
        """Emit ``scf.parallel`` of ``count`` iterations; return an emitter in it, before its end, and its counter."""
        inside, (counter,) = self.parallel_loops([count], attributes)
        return inside, counter

    def parallel_loops(
        self, counts: Sequence[Size], attributes: Mapping[str, ir.Attribute]
    ) -> tuple[Self, list[ir.Value]]:
        """Emit ``scf.parallel`` of loops of ``counts``; return an emitter in them, before their end, and counters."""
        rank = len(counts)
        bounds = [self.index(count) for count in (*[0] * rank, *counts, *[1] * rank)]
        segments = {"operandSegmentSizes": self.segments(rank, rank, rank, 0)}
        op = self.op("scf.parallel", [], bounds, segments | dict(attributes), regions=1)
        block = self.add_block(op.regions[0], [ir.IndexType.get(self.context)] * rank)
        end = self.inside(block).op("scf.reduce", [])
        return type(self)(ir.InsertionPoint(end), self.location), list(block.arguments)

    def nest(
        self,
        sizes: Sequence[Size],
        state: Sequence[ir.Value],
        body: Callable[[LoopEmitter, Sequence[ir.Value], Sequence[ir.Value]], Sequence[ir.Value]],
        innermost: Mapping[str, ir.Attribute] = MappingProxyType({}),
    ) -> list[ir.Value]:
        """Emit a loop nest, one loop for each of ``sizes``; ``body`` takes the induction variables.

        The innermost loop has the attributes ``innermost``.
        """
        if not sizes:
            return list(body(self, [], state))

        def outer_body(emit: LoopEmitter, counter: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            return emit.nest(
                sizes[1:], carried, lambda deep, rest, values: body(deep, [counter, *rest], values), innermost
            )

        return self.loop(0, sizes[0], 1, state, outer_body, innermost if len(sizes) == 1 else {})

    def indices(self, map_: ir.AffineMap, counters: Sequence[ir.Value]) -> list[ir.Value]:
        """Emit the indices that ``map_`` computes of the ``counters`` of loops."""
        indices: list[ir.Value] = []
        for expression in map_.results:
            if (loop := loop_of(expression)) is not None:
                indices.append(counters[loop])
            else:
                single = ir.AffineMapAttr.get(ir.AffineMap.get(map_.n_dims, 0, [expression]))
                indices.append(self.op("affine.apply", ["index"], counters, {"map": single}).result)
        return indices


def _leading_axis_groups(rank: int) -> list[list[int]]:
    return [[0, 1], *([axis] for axis in range(2, rank))] if rank > 1 else []
