"""Convert convolutions to channels-last, a layout in which kernels and vector units read whole rows.

Each convolution with a constant weight runs on transposed tensors. The transpose of its result sinks below
layout-agnostic operations, until it meets its inverse or an operation that needs the program's layout.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import attributes_of, is_used, producer
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.indexing_maps import indexing_maps
from fx_importer.mlir.walk import rewrite_with_options
from fx_importer.rewrites.linalg.axis_orders import (
    Layouts,
    Order,
    consecutive_groups,
    groups_of,
    inverse,
    padded,
    read_by_axis,
    transposed,
)
from fx_importer.rewrites.linalg.integer_convolutions import is_integer_product, product_of_windows
from fx_importer.rewrites.linalg.loop_interchange import permute_loops, uses_loop_index

_IMAGE: Order = (0, 3, 1, 2)
"""The axes ``nchw`` in ``nhwc``."""
_CONVOLUTIONS: dict[str, tuple[str, Order]] = {
    "linalg.conv_2d_nchw_fchw": ("conv_2d_nhwc_hwcf", (2, 3, 1, 0)),
    "linalg.depthwise_conv_2d_nchw_chw": ("depthwise_conv_2d_nhwc_hwc", (1, 2, 0)),
}
"""The channels-last operation, and the axis order of its weight relative to the original."""
_POOLINGS = {f"linalg.pooling_nchw_{kind}": f"pooling_nhwc_{kind}" for kind in ("max", "sum")}

_SHORTEST_ROW = 8
"""In elements. Loops along shorter rows would not be vectorized."""


@rewrite_with_options("fx-importer-channels-last")
def channels_last(
    module: ir.Operation, elements: Collection[str] = ("f32", "f64"), integer_products: bool = False
) -> None:
    """Convert statically shaped convolutions on tensors in the functions of ``module``, and the operations around them.

    Convolutions with other ``elements`` are unchanged. With ``integer_products``, int8 convolutions become matmuls.
    """
    for function in functions_of(module).values():
        for block in function.body.blocks:
            if any(op.operation.name in _CONVOLUTIONS for op in block):
                _Layouts(elements, integer_products).rewrite(block)


class _Layouts(Layouts):
    def __init__(self, elements: Collection[str], integer_products: bool) -> None:
        super().__init__()
        self.elements = elements
        self.integer_products = integer_products

    def rewrite(self, block: ir.Block) -> None:
        """Visit all operations of ``block`` in order."""
        visitors = {
            **dict.fromkeys(_CONVOLUTIONS, self._convolution),
            **dict.fromkeys(_POOLINGS, self._pooling),
            "linalg.generic": self._generic,
            "linalg.transpose": self._transpose,
            "tensor.pad": self._pad,
            "tensor.collapse_shape": self._collapse,
        }
        self.visit(block, visitors)

    # --- operations -------------------------------------------------------------------------------------------------

    def _convolution(self, op: ir.Operation) -> None:
        image, weight, begin = op.operands
        filter_ = _constant(weight)
        if filter_ is not None and self.integer_products and is_integer_product(op):
            emit = LinalgOps.before(op)
            x, y = self._in_layout(emit, image, _IMAGE), self._in_layout(emit, begin, _IMAGE)
            constant, axes = filter_
            w = transposed(emit, constant, tuple(axes[axis] for axis in (0, 2, 3, 1)))
            self._replace(op, emit, product_of_windows(emit, op, x, w, y), _IMAGE)
            return
        element = LinalgOps.element(image)
        if filter_ is None or element not in self.elements:
            return  # only constant weights are transposed at load
        constant, axes = filter_
        emit = LinalgOps.before(op)
        name, order = _CONVOLUTIONS[op.name]
        x, y = self._in_layout(emit, image, _IMAGE), self._in_layout(emit, begin, _IMAGE)
        is_product = len(order) == 4 and emit.shape(weight)[2:] == (1, 1) and _numbers(op, "strides") == [1, 1]
        if is_product and LinalgOps.element(begin) == element:  # libraries pack the weights of 16-bit convolutions once
            result = _product(emit, x, transposed(emit, constant, (axes[1], axes[0])), y)
        else:
            body = op.regions[0].blocks[0]
            w = transposed(emit, constant, tuple(axes[axis] for axis in order))
            result = emit.structured(
                name, [x, w], [y], lambda inside, elements: inside.inline_block(body, elements), _parameters(op)
            )[0]
        self._replace(op, emit, result, _IMAGE)

    def _pooling(self, op: ir.Operation) -> None:
        image, window, begin = op.operands
        source, order = self.sources.get(image, (image, None))
        if order != _IMAGE:
            return
        emit = LinalgOps.before(op)
        body = op.regions[0].blocks[0]
        result = emit.structured(
            _POOLINGS[op.name],
            [source, window],
            [self._in_layout(emit, begin, _IMAGE)],
            lambda inside, elements: inside.inline_block(body, elements),
            _parameters(op),
        )[0]
        self._replace(op, emit, result, _IMAGE)

    def _generic(self, op: ir.Operation) -> None:
        inputs = list(op.operands)[: len(op.operands) - len(op.results)]
        if not any(value in self.sources for value in inputs):
            return
        maps = indexing_maps(op)
        identity = ir.AffineMap.get_identity(maps[-1].n_dims, op.context)
        orders = [
            self.sources[value][1]
            for value, read in zip(inputs, maps, strict=False)
            if value in self.sources and read == identity
        ]
        with op.context:
            for position, value in enumerate(inputs):
                if value in self.sources:
                    op.operands[position], order = self.sources[value]
                    maps[position] = read_by_axis(maps[position], order)
            op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps])
            if orders and _is_elementwise(op):
                emit = LinalgOps.before(op)
                self._replace(op, emit, _permuted(emit, op, maps, orders[0]), orders[0])

    def _transpose(self, op: ir.Operation) -> None:
        order = tuple(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
        value = op.operands[0]
        if value not in self.sources:
            if order == _IMAGE:
                self.sources[op.results[0]] = value, order
            return
        source, before = self.sources[value]
        composed = tuple(before[axis] for axis in order)
        if composed == tuple(range(len(composed))):
            op.results[0].replace_all_uses_with(source)
            op.erase()
        else:
            self._replace(op, LinalgOps.before(op), source, composed)

    def _pad(self, op: ir.Operation) -> None:
        if op.operands[0] in self.sources and len(op.operands) == 1:
            source, order = self.sources[op.operands[0]]
            emit = LinalgOps.before(op)
            self._replace(op, emit, padded(emit, op, source, order), order)

    def _collapse(self, op: ir.Operation) -> None:
        if op.operands[0] not in self.sources:
            return
        source, order = self.sources[op.operands[0]]
        emit = LinalgOps.before(op)
        groups = groups_of(op)
        kind = ir.RankedTensorType(source.type)
        runs = consecutive_groups(list(kind.shape), [[order[axis] for axis in group] for group in groups])
        if runs is None:
            return
        sizes = [ir.RankedTensorType(op.results[0].type).shape[number] for number, _ in runs]
        result = emit.collapse_shape(source, [axes for _, axes in runs], emit.tensor(sizes, kind.element_type))
        numbers = [number for number, _ in runs]
        self._replace(op, emit, result, tuple(numbers.index(number) for number in range(len(groups))))

    # --- values -----------------------------------------------------------------------------------------------------

    def _replace(self, op: ir.Operation, emit: LinalgOps, source: ir.Value, order: Order) -> None:
        """Replace ``op`` by the transpose of ``source``."""
        result = transposed(emit, source, order)
        if ir.RankedTensorType(source.type).shape[-1] >= _SHORTEST_ROW:
            self.sources[result] = source, order
        op.results[0].replace_all_uses_with(result)
        op.erase()

    def _in_layout(self, emit: LinalgOps, value: ir.Value, order: Order) -> ir.Value:
        """Return the tensor whose transpose with axes ``order`` is ``value``; emit it if needed."""
        source, source_order = self.sources.get(value, (value, None))
        if source_order == order:
            return source
        if producer(value) == "linalg.fill":
            kind = ir.RankedTensorType(value.type)
            empty = emit.empty([kind.shape[axis] for axis in inverse(order)], kind.element_type)
            return emit.fill(value.owner.operands[0], empty)
        if producer(value) == "tensor.pad" and len(value.owner.operands) == 1:
            return padded(emit, value.owner, self._in_layout(emit, value.owner.operands[0], order), order)
        if producer(value) == "linalg.broadcast":
            return _broadcast(emit, value.owner, order)
        return transposed(emit, value, inverse(order))


def _numbers(op: ir.Operation, name: str) -> list[int]:
    return list(ir.DenseIntElementsAttr(op.attributes[name])) if name in op.attributes else [1, 1]


def _parameters(op: ir.Operation) -> dict[str, ir.Attribute]:
    return {name: value for name, value in attributes_of(op).items() if name != "linalg.memoized_indexing_maps"}


def _constant(weight: ir.Value) -> tuple[ir.Value, Order] | None:
    """Return the constant behind ``weight`` and the order of its axes; None if ``weight`` is not a constant."""
    if producer(weight) == "arith.constant":
        return weight, tuple(range(ir.RankedTensorType(weight.type).rank))
    if producer(weight) != "tensor.collapse_shape" or producer(weight.owner.operands[0]) != "arith.constant":
        return None
    constant = weight.owner.operands[0]
    sizes = ir.RankedTensorType(constant.type).shape
    axes = [[axis for axis in group if sizes[axis] != 1] or group[:1] for group in groups_of(weight.owner)]
    return (constant, tuple(axis for (axis,) in axes)) if all(len(axis) == 1 for axis in axes) else None


def _product(emit: LinalgOps, image: ir.Value, weight: ir.Value, begin: ir.Value) -> ir.Value:
    """Emit a 1x1 convolution as a matmul with ``weight``, which has one element per pair of channels."""
    result = ir.RankedTensorType(begin.type)
    element = result.element_type
    (channels, filters) = ir.RankedTensorType(weight.type).shape
    pixels = math.prod(result.shape[:3])
    groups = [[0, 1, 2], [3]]
    left = emit.collapse_shape(image, groups, emit.tensor([pixels, channels], element))
    if producer(begin) == "linalg.fill":
        to = emit.fill(begin.owner.operands[0], emit.empty([pixels, filters], element))
    else:
        to = emit.collapse_shape(begin, groups, emit.tensor([pixels, filters], element))
    maps = [emit.select_axes(3, axes) for axes in ((0, 2), (2, 1), (0, 1))]  # IREE 3.13 crashes without them
    attributes = {"operandSegmentSizes": emit.segments(2, 1), "indexing_maps": emit.affine_maps(maps)}
    (product,) = emit.structured("matmul", [left, weight], [to], _multiply_add, attributes)
    return emit.expand_shape(product, groups, list(result.shape))


def _multiply_add(inside: LinalgOps, elements: Sequence[ir.Value]) -> list[ir.Value]:
    left, right, total = elements
    kind = total.type
    return [inside.value("arith.addf", kind, total, inside.value("arith.mulf", kind, left, right))]


def _permuted(emit: LinalgOps, op: ir.Operation, maps: list[ir.AffineMap], order: Order) -> ir.Value:
    """Emit the elementwise ``op``, with its body, in the layout before the transposition by ``order``."""
    old = ir.RankedTensorType(op.results[0].type)
    result = emit.empty([old.shape[axis] for axis in inverse(order)], old.element_type)
    with op.context:
        permute_loops(op, inverse(order), [*maps[:-1], read_by_axis(maps[-1], order)])
    operands = [*list(op.operands)[:-1], result]
    copy = emit.op("linalg.generic", [result.type], operands, attributes_of(op), regions=1)
    op.regions[0].blocks[0].append_to(copy.regions[0])
    return copy.results[0]


def _broadcast(emit: LinalgOps, op: ir.Operation, order: Order) -> ir.Value:
    """Emit the ``linalg.broadcast`` ``op`` in the layout before the transposition by ``order``."""
    kind = ir.RankedTensorType(op.results[0].type)
    empty = emit.empty([kind.shape[axis] for axis in inverse(order)], kind.element_type)
    added = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
    read = emit.select_axes(kind.rank, [order[axis] for axis in range(kind.rank) if axis not in added])
    maps = [read, emit.select_axes(kind.rank, range(kind.rank))]
    return emit.generic([op.operands[0]], [empty], maps, lambda _, elements: elements[:1])[0]


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether ``op`` computes each element of its only result independently."""
    maps = indexing_maps(op)
    written = op.regions[0].blocks[0].arguments[len(op.operands) - 1]
    return (
        len(op.results) == 1
        and maps[-1] == ir.AffineMap.get_identity(maps[-1].n_dims, op.context)
        and not is_used(written)
        and not uses_loop_index(op)
    )
