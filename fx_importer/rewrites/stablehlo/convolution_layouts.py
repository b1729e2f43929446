"""Convert convolutions to the fast layout of XLA and IREE: channels last, and filters last in kernels.

Each convolution runs on transposed tensors. The transpose of its result sinks below layout-agnostic operations, until
it meets its inverse or an operation that needs the program's layout. A weight is transposed once, at load; for XLA, by
`split_preparation`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.emitter import attributes_of, producer
from fx_importer.mlir.emit.stablehlo import ELEMENTWISE, StablehloOps
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.linalg.axis_orders import Layouts, Order, consecutive_groups, inverse

_CONVOLUTION = "stablehlo.convolution"


@rewrite("fx-importer-stablehlo-channels-last")
def stablehlo_channels_last(module: ir.Operation) -> None:
    """Convert statically shaped convolutions in the functions of ``module``, and the operations around them.

    The pass ``cse`` merges equal transposes.
    """
    for block in dict.fromkeys(op.block for op in operations(module, (_CONVOLUTION,))):
        _Layouts().rewrite(block)


class _Layouts(Layouts):
    def rewrite(self, block: ir.Block) -> None:
        """Visit all operations of ``block`` in order."""
        visitors = {
            **dict.fromkeys(ELEMENTWISE, self._elementwise),
            _CONVOLUTION: self._convolution,
            "stablehlo.broadcast_in_dim": self._broadcast,
            "stablehlo.concatenate": self._concatenate,
            "stablehlo.pad": self._pad,
            "stablehlo.reduce": self._reduce,
            "stablehlo.reduce_window": self._window,
            "stablehlo.reshape": self._reshape,
            "stablehlo.reverse": self._reverse,
            "stablehlo.select_and_scatter": self._window,
            "stablehlo.slice": self._slice,
            "stablehlo.transpose": self._transpose,
        }
        self.visit(block, visitors)

    # --- operations -------------------------------------------------------------------------------------------------

    def _convolution(self, op: ir.Operation) -> None:
        emit = StablehloOps.before(op)
        spec = stablehlo_d.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        last = len(spec.input_spatial_dimensions) + 1
        spatial = list(range(1, last))
        image = _order(spec.input_batch_dimension, spec.input_spatial_dimensions, spec.input_feature_dimension)
        result = _order(spec.output_batch_dimension, spec.output_spatial_dimensions, spec.output_feature_dimension)
        kernel = _order(
            *(spec.kernel_spatial_dimensions, spec.kernel_input_feature_dimension),
            spec.kernel_output_feature_dimension,
        )
        numbers = stablehlo_d.ConvDimensionNumbers.get(
            *(0, last, spatial, last - 1, last, [axis - 1 for axis in spatial], 0, last, spatial), ctx=op.context
        )
        operands = [self._in_layout(emit, x, order) for x, order in zip(op.operands, (image, kernel), strict=True)]
        self._replace(op, emit, operands, [result], {"dimension_numbers": numbers})

    def _elementwise(self, op: ir.Operation) -> None:
        if (order := self._order_of(op.operands)) is None:
            return
        emit = StablehloOps.before(op)
        rank = len(order)  # a bound or a condition may have rank 0
        operands = [
            self._in_layout(emit, operand, order) if ir.RankedTensorType(operand.type).rank == rank else operand
            for operand in op.operands
        ]
        self._replace(op, emit, operands, [order])

    def _broadcast(self, op: ir.Operation) -> None:
        order = self._order_of(op.operands)
        if order is None or _axes(op, "broadcast_dimensions") != list(range(len(op.results[0].type.shape))):
            return
        self._replace(op, StablehloOps.before(op), [self.sources[op.operands[0]][0]], [order])

    def _concatenate(self, op: ir.Operation) -> None:
        if (order := self._order_of(op.operands)) is None:
            return
        emit = StablehloOps.before(op)
        axis = order[ir.IntegerAttr(op.attributes["dimension"]).value]
        operands = [self._in_layout(emit, operand, order) for operand in op.operands]
        self._replace(op, emit, operands, [order], {"dimension": emit.i64(axis)})

    def _pad(self, op: ir.Operation) -> None:
        self._along_axes(op, 1, ("edge_padding_low", "edge_padding_high", "interior_padding"))

    def _slice(self, op: ir.Operation) -> None:
        self._along_axes(op, 1, ("start_indices", "limit_indices", "strides"))

    def _window(self, op: ir.Operation) -> None:
        tensors = 2 if op.name == "stablehlo.select_and_scatter" else len(op.results)
        names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
        self._along_axes(op, tensors, names)

    def _along_axes(self, op: ir.Operation, tensors: int, names: Sequence[str]) -> None:
        """Rewrite ``op``, whose first ``tensors`` operands are tensors; attributes ``names`` have a number per axis."""
        if (order := self._order_of(list(op.operands)[:tensors])) is None:
            return
        emit = StablehloOps.before(op)
        before = inverse(order)
        changed = {
            name: emit.array([_axes(op, name)[axis] for axis in before]) for name in names if name in op.attributes
        }
        if "padding" in op.attributes:
            pads = np.array(ir.DenseIntElementsAttr(op.attributes["padding"]), np.int64).reshape(-1, 2)
            changed["padding"] = ir.DenseElementsAttr.get(pads[list(before)], context=op.context)
        operands = [
            self._in_layout(emit, value, order) if at < tensors else value for at, value in enumerate(op.operands)
        ]
        self._replace(op, emit, operands, [order] * len(op.results), changed)

    def _reverse(self, op: ir.Operation) -> None:
        if (order := self._order_of(op.operands)) is not None:
            emit = StablehloOps.before(op)
            axes = emit.array(sorted(order[axis] for axis in _axes(op, "dimensions")))
            self._replace(op, emit, [self.sources[op.operands[0]][0]], [order], {"dimensions": axes})

    def _reduce(self, op: ir.Operation) -> None:
        count = len(op.results)
        if (order := self._order_of(list(op.operands)[:count])) is None:
            return
        emit = StablehloOps.before(op)
        axes = _axes(op, "dimensions")
        kept = [order[axis] for axis in range(len(order)) if axis not in axes]
        operands = [
            self._in_layout(emit, value, order) if at < count else value for at, value in enumerate(op.operands)
        ]
        changed = {"dimensions": emit.array(sorted(order[axis] for axis in axes))}
        self._replace(op, emit, operands, [tuple(sorted(kept).index(axis) for axis in kept)] * count, changed)

    def _reshape(self, op: ir.Operation) -> None:
        if op.operands[0] not in self.sources or 0 in op.operands[0].type.shape:
            return
        source, order = self.sources[op.operands[0]]
        groups = _groups(op.operands[0].type.shape, op.results[0].type.shape)
        runs = consecutive_groups(list(source.type.shape), [[order[axis] for axis in before] for before, _ in groups])
        if runs is not None:
            axes = [axis for number, _ in runs for axis in groups[number][1]]
            self._replace(op, StablehloOps.before(op), [source], [tuple(axes.index(axis) for axis in range(len(axes)))])

    def _transpose(self, op: ir.Operation) -> None:
        order = tuple(_axes(op, "permutation"))
        value = op.operands[0]
        if value not in self.sources:
            if len(order) > 2 and order == _order(0, range(2, len(order)), 1):
                self.sources[op.results[0]] = value, order
            return
        source, before = self.sources[value]
        composed = tuple(before[axis] for axis in order)
        self._use(op.results[0], StablehloOps.before(op), source, composed)
        op.erase()

    # --- values -----------------------------------------------------------------------------------------------------

    def _order_of(self, operands: Iterable[ir.Value]) -> Order | None:
        """Return the axis order of the first of ``operands`` that is a transpose."""
        return next((self.sources[operand][1] for operand in operands if operand in self.sources), None)

    def _replace(
        self,
        op: ir.Operation,
        emit: StablehloOps,
        operands: Sequence[ir.Value],
        orders: Sequence[Order],
        changed: Mapping[str, ir.Attribute] | None = None,
    ) -> None:
        """Compute ``op`` on ``operands``, and replace its results by the transposes of the new ones."""
        types = [_before(result.type, order) for result, order in zip(op.results, orders, strict=True)]
        copy = emit.op(op.name, types, operands, attributes_of(op) | dict(changed or {}), regions=len(op.regions))
        for old, new in zip(op.regions, copy.regions, strict=True):
            old.blocks[0].append_to(new)
        for result, source, order in zip(op.results, copy.results, orders, strict=True):
            self._use(result, emit, source, order)
        op.erase()

    def _use(self, result: ir.Value, emit: StablehloOps, source: ir.Value, order: Order) -> None:
        """Use the transpose of ``source`` in place of ``result``."""
        if order == tuple(sorted(order)):
            result.replace_all_uses_with(source)
            return
        made = _permuted(emit, source, order)
        self.sources[made] = source, order
        result.replace_all_uses_with(made)

    def _in_layout(self, emit: StablehloOps, value: ir.Value, order: Order) -> ir.Value:
        """Return the tensor whose transpose with axes ``order`` is ``value``; emit it if needed."""
        source, source_order = self.sources.get(value, (value, None))
        if source_order == order or order == tuple(sorted(order)):
            return source if source_order == order else value
        type_ = _before(value.type, order)
        if producer(value) == "stablehlo.constant":
            elements = value.owner.attributes["value"]
            plain = isinstance(type_.element_type, (ir.FloatType, ir.IntegerType))
            if plain and isinstance(elements, ir.DenseElementsAttr) and elements.is_splat:
                return emit.const(ir.DenseElementsAttr.get_splat(type_, elements.get_splat_value()))
        if producer(value) == "stablehlo.iota":
            axis = order[ir.IntegerAttr(value.owner.attributes["iota_dimension"]).value]
            return emit.op("stablehlo.iota", [type_], (), {"iota_dimension": emit.i64(axis)}).result
        if producer(value) == "stablehlo.broadcast_in_dim":
            axes = [order[axis] for axis in _axes(value.owner, "broadcast_dimensions")]
            increasing = tuple(sorted(range(len(axes)), key=axes.__getitem__))
            small = _permuted(emit, value.owner.operands[0], increasing)
            return emit.op(
                "stablehlo.broadcast_in_dim", [type_], [small], {"broadcast_dimensions": emit.array(sorted(axes))}
            ).result
        return _permuted(emit, value, inverse(order))


def _permuted(emit: StablehloOps, value: ir.Value, order: Order) -> ir.Value:
    """Return ``value`` with axes ``order``, as a reshape if only axes of size 1 move."""
    sizes = emit.shape(value)
    wide = [axis for axis in order if sizes[axis] != 1]
    if order != tuple(sorted(order)) and wide == sorted(wide):
        return emit.stablehlo("reshape", _before(value.type, inverse(order)), value)
    return emit.permute(value, order)


def _order(*axes: int | Sequence[int]) -> Order:
    """Return the inverse of the order that the concatenated ``axes`` give."""
    return inverse(tuple(axis for entry in axes for axis in (entry if isinstance(entry, Sequence) else [entry])))


def _before(type_: ir.Type, order: Order) -> ir.RankedTensorType:
    """Return the type of a tensor whose transpose with axes ``order`` has ``type_``."""
    kind = ir.RankedTensorType(type_)
    return ir.RankedTensorType.get(
        [kind.shape[axis] for axis in inverse(order)], kind.element_type, loc=ir.Location.unknown(type_.context)
    )


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return the smallest groups of axes that hold the same elements before and after a reshape."""
    groups: list[tuple[list[int], list[int]]] = []
    left, right = 0, 0
    while left < len(before) and right < len(after):
        first, second = [left], [right]
        while (product := math.prod(before[axis] for axis in first)) != (
            made := math.prod(after[axis] for axis in second)
        ):
            axes = first if product < made else second
            axes.append(axes[-1] + 1)
        groups.append((first, second))
        left, right = first[-1] + 1, second[-1] + 1
    if groups:  # the remaining axes have size 1
        groups[-1][0].extend(range(left, len(before)))
        groups[-1][1].extend(range(right, len(after)))
    return groups


def _axes(op: ir.Operation, name: str) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name]))
