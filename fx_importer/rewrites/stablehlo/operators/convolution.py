"""Convolutions with weights of dynamic shape."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.rewrites.stablehlo.tensor_emitter import TensorEmitter


def _convolution(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
    """Lower to ``stablehlo.convolution``; no match if transposed with groups or with a kernel of dynamic size.

    The padding is an attribute; for a transposed convolution, it is ``dilation * (kernel - 1) - padding``.
    """
    kind = ir.RankedTensorType(emit.torch.builtin_type(op.operands[1].type))
    lists = [emit.integers(operand) for operand in (*list(op.operands)[3:6], op.operands[7])]
    numbers = [numbers_ for numbers_ in lists if numbers_ is not None]
    transposed, groups = constant_of(op.operands[6]), constant_of(op.operands[8])
    if len(numbers) < 4:
        op.location.emit_error(
            "strides, padding and dilation are attributes in StableHLO, and those of this convolution are computed "
            "from dynamic sizes, as in the gradient of the input of a convolution by a kernel of dynamic size"
        )
    if kind.has_static_shape or len(numbers) < 4 or groups is None or transposed is None:
        return None
    kernel = [None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(2, kind.rank)]
    if transposed and (groups > 1 or None in kernel):
        return None
    settings = [list(values) * len(kernel) if len(values) == 1 else values for values in numbers]
    stride, padding, dilation, more = settings
    if not transposed or not more:  # PyTorch reads output_padding of transposed convolutions only
        more = [0] * len(kernel)
    x, weight = map(emit.torch.to_builtin, list(op.operands)[:2])
    if transposed:
        along = {"dimensions": emit.array(list(range(2, kind.rank)))}
        weight = emit.op("stablehlo.reverse", [weight.type], [weight], along).result
        reach = [apart * ((size or 1) - 1) for size, apart in zip(kernel, dilation, strict=True)]
        padding = [before - width for before, width in zip(reach, padding, strict=True)]
    widths = ", ".join(f"[{width}, {width + extra}]" for width, extra in zip(padding, more, strict=True))
    spatial = ", ".join(map(str, range(len(kernel))))
    axes = f"[b, f, {spatial}]x[{'i, o' if transposed else 'o, i'}, {spatial}]->[b, f, {spatial}]"
    attributes = {
        "lhs_dilation" if transposed else "window_strides": emit.array(stride),
        "rhs_dilation": emit.array(dilation),
        "padding": ir.Attribute.parse(f"dense<[{widths}]> : tensor<{len(kernel)}x2xi64>", emit.context),
        "dimension_numbers": ir.Attribute.parse(f"#stablehlo.conv<{axes}>", emit.context),
        "feature_group_count": emit.i64(groups),
        "batch_group_count": emit.i64(1),
    }
    result = emit.op(
        "stablehlo.convolution", [emit.torch.builtin_type(op.results[0].type)], [x, weight], attributes
    ).result
    if producer(op.operands[2]) == "torch.constant.none":
        return [result]
    bias = emit.broadcast(emit.torch.to_builtin(op.operands[2]), [1], emit.arith.sizes(result))
    return [emit.value("stablehlo.add", result.type, result, bias)]


LOWERINGS = {"torch.aten.convolution": _convolution}
