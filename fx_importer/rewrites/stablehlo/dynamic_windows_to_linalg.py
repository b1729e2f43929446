"""Lower convolutions and windows whose sizes are dynamic; StableHLO's conversion leaves these alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.emitter import Size, replace
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.linalg.axis_orders import transposed

_NAMES = ("stablehlo.convolution", "stablehlo.reduce_window")


@rewrite("fx-importer-stablehlo-windows-to-linalg", ops=_NAMES, emitter=LinalgOps)
def dynamic_windows_to_linalg(op: ir.Operation, emit: LinalgOps) -> None:
    """Replace convolutions of images with channels first, and windows, if a size is dynamic.

    Floats of 16 bits are summed in float32. Windows of dilated inputs or with negative padding remain.
    """
    values = (*op.operands, *op.results)
    if all(ir.RankedTensorType(value.type).has_static_shape for value in values):
        return
    if op.name == "stablehlo.convolution":
        if (order := _kernel_order(op)) is not None:
            replace(op, _convolution(emit, op, order))
    elif all(size == 1 for size in _numbers(op, "base_dilations", [1])) and all(size >= 0 for size in _padding(op)):
        replace(op, *_reduce_window(emit, op))


def _numbers(op: ir.Operation, name: str, default: Sequence[int]) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name])) if name in op.attributes else list(default)


def _padding(op: ir.Operation) -> list[int]:
    """Return the widths before and after each axis in turn; empty without padding."""
    if "padding" not in op.attributes:
        return []
    values = ir.DenseIntElementsAttr(op.attributes["padding"])
    return [(value + 2**63) % 2**64 - 2**63 for value in values]  # the bindings return some unsigned


def _kernel_order(op: ir.Operation) -> list[int] | None:
    """Return the axes filters, channels, space of the kernel; None for a convolution that remains."""
    numbers = stablehlo_d.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    rank, kernel = ir.RankedTensorType(op.operands[0].type).rank, numbers.kernel_spatial_dimensions
    orders = (
        [numbers.input_batch_dimension, numbers.input_feature_dimension, *numbers.input_spatial_dimensions],
        [numbers.output_batch_dimension, numbers.output_feature_dimension, *numbers.output_spatial_dimensions],
    )
    elements = {str(LinalgOps.element(value)) for value in (*op.operands, op.results[0])}
    accepted = (
        all(order == list(range(rank)) for order in orders)
        and (elements <= _INTEGERS or (elements <= _FLOATS and len(elements - _NARROW) <= 1))
        and ("window_reversal" not in op.attributes or "true" not in str(op.attributes["window_reversal"]))
        and ir.IntegerAttr(op.attributes["batch_group_count"]).value == 1
        and ir.RankedTensorType(op.operands[1].type).has_static_shape
    )
    return (
        [numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension, *kernel] if accepted else None
    )


_INTEGERS = {"i8", "i16", "i32", "i64"}
_NARROW = {"f16", "bf16"}
_FLOATS = {*_NARROW, "f32", "f64"}


def _padded(
    emit: LinalgOps,
    x: ir.Value,
    value: ir.Value,
    before: Sequence[int],
    after: Sequence[int],
    apart: Sequence[int] = (),
) -> ir.Value:
    """Emit ``x`` with ``value`` around it, and between its elements, which are ``apart``; without negative widths."""
    sizes, apart = emit.sizes(x), apart or [1] * len(before)
    if any((*before, *after)) or set(apart) != {1}:
        around = [
            _sum(emit, size, max(low, 0) + max(high, 0) + 1 - step, step)
            for size, low, high, step in zip(sizes, before, after, apart, strict=True)
        ]
        offsets = [max(low, 0) for low in before]
        x = emit.insert_slice(x, emit.fill(value, emit.empty(around, value.type)), offsets, sizes, apart)
        sizes = around
    if min((*before, *after)) < 0:
        cut = [-min(low, 0) for low in before]
        left = [_sum(emit, size, min(high, 0) - low, 1) for size, low, high in zip(sizes, cut, after, strict=True)]
        x = emit.extract_slice(x, cut, left, range(len(cut)))
    return x


def _sum(emit: LinalgOps, size: Size, more: int, factor: int) -> Size:
    """Emit ``size * factor + more``."""
    if isinstance(size, int):
        return size * factor + more
    size = emit.index_op("muli", size, factor) if factor != 1 else size
    return emit.index_op("addi", size, more) if more else size


def _positions(
    emit: LinalgOps, result: ir.Value, x: ir.Value, windows: Sequence[int], steps: Sequence[int], gaps: Sequence[int]
) -> list[Size]:
    """Return how many windows there are along each axis of ``x``, which is padded."""
    sizes: list[Size] = []
    for axis, static in enumerate(emit.shape(result)):
        if static is not None:
            sizes.append(static)
            continue
        last = emit.index_op("subi", emit.size(x, axis), gaps[axis] * (windows[axis] - 1) + 1)
        sizes.append(emit.index_op("addi", emit.index_op("divsi", last, steps[axis]), 1))
    return sizes


def _contraction(
    emit: LinalgOps,
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    maps: Sequence[ir.AffineMap],
    parallel: int,
    body: Callable[[LinalgOps, Sequence[ir.Value]], Sequence[ir.Value]],
) -> list[ir.Value]:
    """Emit a ``linalg.generic`` whose first loops are ``parallel``, and the others reductions."""
    kinds = ["parallel"] * parallel + ["reduction"] * (maps[0].n_dims - parallel)
    iterators = [emit.attribute(f"#linalg.iterator_type<{kind}>") for kind in kinds]
    attributes = {
        "indexing_maps": emit.affine_maps(maps),
        "iterator_types": ir.ArrayAttr.get(iterators, emit.context),
        "operandSegmentSizes": emit.segments(len(inputs), len(outputs)),
    }
    return emit.structured("generic", inputs, outputs, body, attributes)


def _reduce_window(emit: LinalgOps, op: ir.Operation) -> list[ir.Value]:
    count, block = len(op.results), op.regions[0].blocks[0]
    rank = ir.RankedTensorType(op.results[0].type).rank
    ones = [1] * rank
    windows = _numbers(op, "window_dimensions", ones)
    steps, gaps = _numbers(op, "window_strides", ones), _numbers(op, "window_dilations", ones)
    padding = _padding(op) or [0] * (2 * rank)
    initial = [emit.extract(value) for value in list(op.operands)[count:]]
    inputs = [
        _padded(emit, x, value, padding[::2], padding[1::2])
        for x, value in zip(list(op.operands)[:count], initial, strict=True)
    ]
    sizes = _positions(emit, op.results[0], inputs[0], windows, steps, gaps)
    outputs = [emit.fill(value, emit.empty(sizes, value.type)) for value in initial]
    wide = [axis for axis in range(rank) if windows[axis] != 1]
    loops = rank + len(wide)
    with emit.context:
        axes: list[ir.AffineExpr] = [ir.AffineExpr.get_dim(axis) * steps[axis] for axis in range(rank)]
        for number, axis in enumerate(wide):
            axes[axis] = axes[axis] + ir.AffineExpr.get_dim(rank + number) * gaps[axis]
        image = ir.AffineMap.get(loops, 0, axes)
        window = ir.AffineMap.get(loops, 0, [ir.AffineExpr.get_dim(axis) for axis in range(rank, loops)])
        result = ir.AffineMap.get(loops, 0, [ir.AffineExpr.get_dim(axis) for axis in range(rank)])
    shape = emit.empty([windows[axis] for axis in wide], initial[0].type)

    def body(inside: LinalgOps, elements: Sequence[ir.Value]) -> Sequence[ir.Value]:
        tensors = [inside.as_tensor(element) for element in (*elements[count + 1 :], *elements[:count])]
        return [inside.extract(argument) for argument in inside.inline_block(block, tensors)]

    return _contraction(emit, [*inputs, shape], outputs, [*[image] * count, window, *[result] * count], rank, body)


def _convolution(emit: LinalgOps, op: ir.Operation, order: Sequence[int]) -> ir.Value:
    """Emit a convolution, with an axis of groups after the batch."""
    x, weight = op.operands
    result = ir.RankedTensorType(op.results[0].type).element_type
    is_integer = isinstance(result, ir.IntegerType)
    kind = emit.type("f32") if str(result) in _NARROW else result
    if list(order) != sorted(order):
        weight = transposed(emit, weight, tuple(order))
    filters, channels, *window = (size or 0 for size in emit.shape(weight))
    groups = ir.IntegerAttr(op.attributes["feature_group_count"]).value
    ones = [1] * len(window)
    steps, gaps = _numbers(op, "window_strides", ones), _numbers(op, "rhs_dilation", ones)
    padding = _padding(op) or [0] * (2 * len(window))
    zero = emit.constant_scalar(0, kind)
    around = emit.constant_scalar(0, ir.RankedTensorType(x.type).element_type)
    apart = [1, 1, *_numbers(op, "lhs_dilation", ones)]
    x = _padded(emit, x, around, [0, 0, *padding[::2]], [0, 0, *padding[1::2]], apart)
    spatial = _positions(emit, op.results[0], x, [1, 1, *window], [1, 1, *steps], [1, 1, *gaps])[2:]
    batch, _, *image = emit.sizes(x)

    def body(inside: LinalgOps, elements: Sequence[ir.Value]) -> Sequence[ir.Value]:
        wide, multiply, add = ("extsi", "muli", "addi") if is_integer else ("extf", "mulf", "addf")
        factors = [
            value if value.type == kind else inside.value(f"arith.{wide}", kind, value) for value in elements[:2]
        ]
        product = inside.value(f"arith.{multiply}", kind, *factors)
        return [inside.value(f"arith.{add}", kind, elements[2], product)]

    if groups == 1 and len(window) == 2 and {emit.element(x), emit.element(weight)} == {str(result)} <= {"f32", "f64"}:
        begin = emit.fill(zero, emit.empty([batch, filters, *spatial], kind))
        attributes = {
            name: emit.attribute(f"dense<{numbers}> : tensor<2xi64>")
            for name, numbers in (("strides", steps), ("dilations", gaps))
        }
        attributes["operandSegmentSizes"] = emit.segments(2, 1)
        return _as(emit, op, emit.structured("conv_2d_nchw_fchw", [x, weight], [begin], body, attributes)[0])
    count = len(window)
    others = [[axis + 3] for axis in range(count)]
    x = emit.expand_shape(x, [[0], [1, 2], *others], [batch, groups, channels, *image])
    weight = emit.expand_shape(weight, [[0, 1], [2], *others], [groups, filters // groups, channels, *window])
    begin = emit.fill(zero, emit.empty([batch, groups, filters // groups, *spatial], kind))
    with emit.context:
        n, g, f, *rest = (ir.AffineExpr.get_dim(axis) for axis in range(4 + 2 * count))
        places, c, offsets = rest[:count], rest[count], rest[count + 1 :]
        at = [
            start * step + offset * gap for start, step, offset, gap in zip(places, steps, offsets, gaps, strict=True)
        ]
        axes = ([n, g, c, *at], [g, f, c, *offsets], [n, g, f, *places])
        maps = [ir.AffineMap.get(4 + 2 * count, 0, axis) for axis in axes]
    (made,) = _contraction(emit, [x, weight], [begin], maps, 3 + count, body)
    sizes = [None if isinstance(size, ir.Value) else size for size in (batch, filters, *spatial)]
    made = emit.collapse_shape(made, [[0], [1, 2], *others], emit.tensor(sizes, kind))
    if kind != result:
        empty = emit.empty(emit.sizes(made), result)
        (made,) = emit.elementwise(
            [made], [empty], lambda inside, values: [inside.value("arith.truncf", result, values[0])]
        )
    return _as(emit, op, made)


def _as(emit: LinalgOps, op: ir.Operation, result: ir.Value) -> ir.Value:
    wanted = op.results[0].type
    return result if result.type == wanted else emit.value("tensor.cast", wanted, result)
