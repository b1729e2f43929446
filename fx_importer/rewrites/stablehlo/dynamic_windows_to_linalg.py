"""Lower convolutions and windows whose sizes are dynamic; StableHLO's conversion leaves these alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.emitter import Size, replace
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.walk import rewrite

_NAMES = ("stablehlo.convolution", "stablehlo.reduce_window")


@rewrite("fx-importer-stablehlo-windows-to-linalg", ops=_NAMES, emitter=LinalgOps)
def dynamic_windows_to_linalg(op: ir.Operation, emit: LinalgOps) -> None:
    """Replace convolutions of float32 and float64 with channels first, and windows, if a size is dynamic.

    Those with dilated inputs or negative padding remain.
    """
    values = (*op.operands, *op.results)
    if all(ir.RankedTensorType(value.type).has_static_shape for value in values):
        return
    name = "lhs_dilation" if op.name == "stablehlo.convolution" else "base_dilations"
    if any(size != 1 for size in _numbers(op, name, [1])) or any(size < 0 for size in _padding(op)):
        return
    if op.name == "stablehlo.reduce_window":
        replace(op, *_reduce_window(emit, op))
    elif _is_plain(op):
        replace(op, _convolution(emit, op))


def _numbers(op: ir.Operation, name: str, default: Sequence[int]) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name])) if name in op.attributes else list(default)


def _padding(op: ir.Operation) -> list[int]:
    """Return the widths before and after each axis in turn; empty without padding."""
    if "padding" not in op.attributes:
        return []
    values = ir.DenseIntElementsAttr(op.attributes["padding"])
    return [value - (value >> 63 << 64) for value in values]  # the bindings return them unsigned


def _is_plain(op: ir.Operation) -> bool:
    """Whether a convolution is of floats, and has the axes batch, channels, space and filters, channels, space."""
    numbers = stablehlo_d.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    rank, kernel = ir.RankedTensorType(op.operands[0].type).rank, numbers.kernel_spatial_dimensions
    orders = (
        [numbers.input_batch_dimension, numbers.input_feature_dimension, *numbers.input_spatial_dimensions],
        [numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension, *kernel],
        [numbers.output_batch_dimension, numbers.output_feature_dimension, *numbers.output_spatial_dimensions],
    )
    elements = {LinalgOps.element(value) for value in (*op.operands, op.results[0])}
    return (
        all(order == list(range(rank)) for order in orders)
        and elements in ({"f32"}, {"f64"})
        and ("window_reversal" not in op.attributes or "true" not in str(op.attributes["window_reversal"]))
        and ir.IntegerAttr(op.attributes["batch_group_count"]).value == 1
        and ir.RankedTensorType(op.operands[1].type).has_static_shape
    )


def _padded(emit: LinalgOps, x: ir.Value, value: ir.Value, before: Sequence[int], after: Sequence[int]) -> ir.Value:
    """Emit ``x`` with ``value`` around it."""
    if not any((*before, *after)):
        return x
    sizes = emit.sizes(x)
    around: list[Size] = []
    for size, low, high in zip(sizes, before, after, strict=True):
        more = low + high
        around.append(size + more if isinstance(size, int) else emit.index_op("addi", size, more) if more else size)
    return emit.insert_slice(x, emit.fill(value, emit.empty(around, value.type)), list(before), sizes)


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
        axes = [ir.AffineExpr.get_dim(axis) * steps[axis] for axis in range(rank)]
        for number, axis in enumerate(wide):
            axes[axis] = axes[axis] + ir.AffineExpr.get_dim(rank + number) * gaps[axis]
        image = ir.AffineMap.get(loops, 0, axes)
        window = ir.AffineMap.get(loops, 0, [ir.AffineExpr.get_dim(axis) for axis in range(rank, loops)])
        result = ir.AffineMap.get(loops, 0, [ir.AffineExpr.get_dim(axis) for axis in range(rank)])
    shape = emit.empty([windows[axis] for axis in wide], initial[0].type)

    def body(inside: LinalgOps, elements: Sequence[ir.Value]) -> Sequence[ir.Value]:
        tensors = [inside.as_tensor(element) for element in (*elements[count + 1 :], *elements[:count])]
        return [inside.extract(each) for each in inside.inline_block(block, tensors)]

    return _contraction(emit, [*inputs, shape], outputs, [*[image] * count, window, *[result] * count], rank, body)


def _convolution(emit: LinalgOps, op: ir.Operation) -> ir.Value:
    """Emit a convolution, with an axis of groups after the batch."""
    x, weight = op.operands
    kind = ir.RankedTensorType(op.results[0].type).element_type
    filters, channels, *window = (size or 0 for size in emit.shape(weight))
    groups = ir.IntegerAttr(op.attributes["feature_group_count"]).value
    ones = [1] * len(window)
    steps, gaps = _numbers(op, "window_strides", ones), _numbers(op, "rhs_dilation", ones)
    padding = _padding(op) or [0] * (2 * len(window))
    zero = emit.constant_scalar(0, kind)
    x = _padded(emit, x, zero, [0, 0, *padding[::2]], [0, 0, *padding[1::2]])
    spatial = _positions(emit, op.results[0], x, [1, 1, *window], [1, 1, *steps], [1, 1, *gaps])[2:]
    batch, _, *image = emit.sizes(x)

    def body(inside: LinalgOps, elements: Sequence[ir.Value]) -> Sequence[ir.Value]:
        product = inside.value("arith.mulf", kind, *elements[:2])
        return [inside.value("arith.addf", kind, elements[2], product)]

    if groups == 1 and len(window) == 2:
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
            place * step + offset * gap for place, step, offset, gap in zip(places, steps, offsets, gaps, strict=True)
        ]
        axes = ([n, g, c, *at], [g, f, c, *offsets], [n, g, f, *places])
        maps = [ir.AffineMap.get(4 + 2 * count, 0, each) for each in axes]
    (made,) = _contraction(emit, [x, weight], [begin], maps, 3 + count, body)
    sizes = [None if isinstance(size, ir.Value) else size for size in (batch, filters, *spatial)]
    return _as(emit, op, emit.collapse_shape(made, [[0], [1, 2], *others], emit.tensor(sizes, kind)))


def _as(emit: LinalgOps, op: ir.Operation, result: ir.Value) -> ir.Value:
    wanted = op.results[0].type
    return result if result.type == wanted else emit.value("tensor.cast", wanted, result)
