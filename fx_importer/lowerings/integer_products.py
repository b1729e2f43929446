"""The operators ``fx_importer_integer.*`` for linalg and StableHLO: products of i8 with i32 accumulators.

The others decompose to integer arithmetic of ATen: the eager implementation.
"""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.decompositions import Decomposition, decomposes
from fx_importer.lowerings.linalg import LinalgEmitter
from fx_importer.lowerings.lowering_registry import Lowerings
from fx_importer.lowerings.lowering_rules import lowers
from fx_importer.lowerings.stablehlo import StablehloEmitter
from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.quantization import integer
from fx_importer.quantization.operators import int8, int16, layers

_DECOMPOSED = {
    int8: (
        *("to_signed", "to_unsigned", "rescale", "binary", "conv2d", "linear", "matmul", "sum", "max_pool2d"),
        *("avg_pool2d", "table", "softmax"),
    ),
    int16: ("wide_conv2d", "wide_linear", "wide_table", "wide_softmax"),
    layers: ("normalize", "resize_nearest", "resize_bilinear", "conv_transpose2d"),
}


def _decomposed() -> list[Decomposition]:
    return [
        decomposes(getattr(integer, name).default)(getattr(module, name))
        for module, names in _DECOMPOSED.items()
        for name in names
    ]


# --- StableHLO ----------------------------------------------------------------------------------------------------


@lowers(integer.conv2d_sums.default, into="stablehlo")
def stablehlo_convolution(
    emit: StablehloEmitter, x: ir.Value, weight: ir.Value, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> ir.Value:
    """Emit a convolution of ``x[N, C, H, W]`` with ``weight[O, C / groups, h, w]``."""
    if groups > 1 and emit.shape(weight)[1] == 1:  # IREE 3.13 makes no depthwise convolution of i8 with a result of i32
        x, weight = emit.cast(x, "i32"), emit.cast(weight, "i32")
    if emit.element(emit.results[0]) == "i64":
        x, weight = emit.cast(x, "i64"), emit.cast(weight, "i64")
    numbers = "#stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>"
    attributes = {
        "window_strides": emit.array(stride),
        "padding": emit.attribute("dense<0> : tensor<2x2xi64>"),
        "lhs_dilation": emit.array((1, 1)),
        "rhs_dilation": emit.array(dilation),
        "dimension_numbers": emit.attribute(numbers),
        "feature_group_count": emit.attribute(f"{groups} : i64"),
        "batch_group_count": emit.attribute("1 : i64"),
    }
    return emit.op("stablehlo.convolution", list(emit.results), [x, weight], attributes).result


@lowers(integer.linear_sums.default, into="stablehlo")
def stablehlo_linear(emit: StablehloEmitter, x: ir.Value, weight: ir.Value) -> ir.Value:
    """Emit ``x[M, K]`` times ``weight[N, K]`` transposed."""
    return _dot(emit, x, weight, 0, 1)


@lowers(integer.matmul_sums.default, into="stablehlo")
def stablehlo_matmul(emit: StablehloEmitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Emit products of matrices ``a[B, M, K]`` and ``b[B, K, N]``."""
    return _dot(emit, a, b, 1, 1)


def _dot(emit: StablehloEmitter, a: ir.Value, b: ir.Value, batches: int, inner: int) -> ir.Value:
    """Emit products over the last axis of ``a`` and the axis ``inner`` of ``b``; the first ``batches`` are shared."""
    if emit.element(emit.results[0]) == "i64":
        a, b = emit.cast(a, "i64"), emit.cast(b, "i64")
    numbers = stablehlo_d.DotDimensionNumbers.get(
        lhs_batching_dimensions=list(range(batches)),
        rhs_batching_dimensions=list(range(batches)),
        lhs_contracting_dimensions=[batches + 1],
        rhs_contracting_dimensions=[inner],
        context=emit.context,
    )
    return emit.op("stablehlo.dot_general", list(emit.results), [a, b], {"dot_dimension_numbers": numbers}).result


# --- linalg -------------------------------------------------------------------------------------------------------


@lowers(integer.conv2d_sums.default, into="linalg-on-tensors")
def linalg_convolution(
    emit: LinalgEmitter, x: ir.Value, weight: ir.Value, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> ir.Value:
    """Emit a convolution of ``x[N, C, H, W]`` with ``weight[O, C / groups, h, w]``."""
    (result,) = emit.results
    attributes = {
        name: emit.attribute(f"dense<{list(each)}> : tensor<2xi64>")
        for name, each in (("strides", stride), ("dilations", dilation))
    }
    batch, channels, *sizes = (size or 0 for size in emit.shape(x))
    filters, depth, *kernel = (size or 0 for size in emit.shape(weight))
    if groups == 1:
        return _product(emit, "conv_2d_nchw_fchw", x, weight, result, attributes)
    if groups == channels == filters:
        weight = emit.reshape(weight, [filters, *kernel])
        return _product(emit, "depthwise_conv_2d_nchw_chw", x, weight, result, attributes)
    x = emit.reshape(x, [batch, groups, channels // groups, *sizes])
    weight = emit.reshape(weight, [groups, filters // groups, depth, *kernel])
    grouped = emit.tensor([batch, groups, filters // groups, *emit.shape(result)[2:]], emit.element(result))
    sums = _product(emit, "conv_2d_ngchw_gfchw", x, weight, grouped, attributes)
    return emit.reshape(sums, [size or 0 for size in emit.shape(result)])


@lowers(integer.linear_sums.default, into="linalg-on-tensors")
def linalg_linear(emit: LinalgEmitter, x: ir.Value, weight: ir.Value) -> ir.Value:
    """Emit ``x[M, K]`` times ``weight[N, K]`` transposed."""
    maps = emit.linalg.affine_maps([emit.linalg.select_axes(3, axes) for axes in ((0, 2), (1, 2), (0, 1))])
    return _product(emit, "matmul", x, weight, emit.results[0], {"indexing_maps": maps})


@lowers(integer.matmul_sums.default, into="linalg-on-tensors")
def linalg_matmul(emit: LinalgEmitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Emit products of matrices ``a[B, M, K]`` and ``b[B, K, N]``."""
    maps = emit.linalg.affine_maps([emit.linalg.select_axes(4, axes) for axes in ((0, 1, 3), (0, 3, 2), (0, 1, 2))])
    return _product(emit, "batch_matmul", a, b, emit.results[0], {"indexing_maps": maps})


def _product(
    emit: LinalgEmitter, name: str, a: ir.Value, b: ir.Value, result: ir.Type, attributes: dict[str, ir.Attribute]
) -> ir.Value:
    """Emit a named operation that adds products of integers, extended to the type of the result, to zeros."""
    kind = emit.element(result)

    def body(inside: LinalgOps, elements: Sequence[ir.Value]) -> Sequence[ir.Value]:
        left, right = (inside.value("arith.extsi", kind, each) for each in elements[:2])
        product = inside.value("arith.muli", kind, left, right)
        return [inside.value("arith.addi", kind, elements[2], product)]

    sizes = [size or 0 for size in emit.shape(result)]
    zeros = emit.linalg.fill_with_zeros(emit.linalg.empty(sizes, ir.RankedTensorType(result).element_type))
    return emit.linalg.structured(
        name, [a, b], [zeros], body, attributes | {"operandSegmentSizes": emit.segments(2, 1)}
    )[0]


INTEGER_PRODUCTS = Lowerings(
    (
        *_decomposed(),
        stablehlo_convolution,
        stablehlo_linear,
        stablehlo_matmul,
        linalg_convolution,
        linalg_linear,
        linalg_matmul,
    )
)
"""The rules of all operators for output types without integer operators of their own."""
