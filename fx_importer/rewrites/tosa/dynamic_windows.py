"""Images of dynamic height or width under windows that do not reach their end: TOSA's windows fill them exactly."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Size, producer, replace
from fx_importer.mlir.emit_torch import constant_of
from fx_importer.mlir.emit_torch_tosa import list_of, tensor_type_of
from fx_importer.mlir.emit_tosa_sizes import TosaSizeOps
from fx_importer.mlir.walk import rewrite

_CONVOLUTION = "torch.aten.convolution"
_CEIL_MODES = {"torch.aten.max_pool2d": 5, "torch.aten.avg_pool2d": 4}
"""The operand of pools that rounds their number of windows up."""


@rewrite("fx-importer-crop-to-windows", ops=(_CONVOLUTION, *_CEIL_MODES), emitter=TosaSizeOps)
def crop_to_windows(op: ir.Operation, emit: TosaSizeOps) -> None:
    """Slice the end of dynamic axes off that no window of a convolution or pool reaches.

    The C++ lowering takes the height of a convolution with strides for zero if it is dynamic: that one is lowered here.
    """
    x, windows = emit.builtin(op.operands[0]), _windows(op)
    if x is None or windows is None:
        return
    if op.name == _CONVOLUTION:
        sizes = emit.shape(x)[2:]
        if any(size is None and step > 1 for size, (_, step, _) in zip(sizes, windows, strict=True)):
            found = _convolution(op, emit, x, windows)
            if found is not None:
                replace(op, emit.value("torch_c.from_builtin_tensor", op.results[0].type, found))
        return
    cropped = x
    for axis, (length, step, pad) in enumerate(windows, start=len(emit.shape(x)) - len(windows)):
        if emit.shape(x)[axis] is None and step > 1 and not pad:  # the C++ lowering drops a padding at the end
            cropped = emit.range_of(cropped, axis, 0, _reached(emit, emit.dim(x, axis), length, step))
    if cropped != x:
        op.operands[0] = emit.value("torch_c.from_builtin_tensor", op.operands[0].type, cropped)


def _convolution(
    op: ir.Operation, emit: TosaSizeOps, x: ir.Value, windows: Sequence[tuple[int, int, int]]
) -> ir.Value | None:
    """Return a convolution of float32 images, in one group: padded, cropped, with channels last."""
    weight, found, dilation = emit.builtin(op.operands[1]), tensor_type_of(op.results[0]), _constants(op, 5)
    biased = producer(op.operands[2]) != "torch.constant.none"
    zero = emit.const(emit.attribute("dense<0.0> : tensor<1xf32>"))
    bias = emit.builtin(op.operands[2]) if biased else zero
    if weight is None or found is None or dilation is None or bias is None or constant_of(op.operands[8]) != 1:
        return None
    if len(windows) != 2 or emit.element(x) != "f32":
        return None
    image = emit.transpose(x, [0, 2, 3, 1])
    widths = [width for _, _, pad in windows for width in (pad, pad)]
    image = emit.pad_with_zeros(image, [0, 0, *widths, 0, 0]) if any(widths) else image
    for axis, (length, step, _) in enumerate(windows, start=1):
        image = emit.range_of(image, axis, 0, _reached(emit, emit.dim(image, axis), length, step))
    batch, channels, *sizes = found[0]
    steps = ", ".join(str(step) for _, step, _ in windows)
    apart = ", ".join(str(each) for each in (dilation * 2)[:2])
    settings = {"pad": "array<i64: 0, 0, 0, 0>", "stride": f"array<i64: {steps}>", "dilation": f"array<i64: {apart}>"}
    result = emit.op(
        "tosa.conv2d",
        [emit.tensor([batch, *sizes, channels], "f32")],
        [image, emit.transpose(weight, [0, 2, 3, 1]), bias, zero, zero],
        {name: emit.attribute(text) for name, text in {**settings, "acc_type": "f32"}.items()},
    ).result
    return emit.transpose(result, [0, 3, 1, 2])


def _reached(emit: TosaSizeOps, size: Size, length: int, step: int) -> Size:
    """Return how many elements windows of ``length`` reach."""
    last = emit.compute("div_floor", emit.compute("sub", size, length), step)
    return emit.compute("add", emit.compute("mul", last, step), length)


def _windows(op: ir.Operation) -> list[tuple[int, int, int]] | None:
    """Return length, step and padding of the windows along each axis; None if they are not known, or fill the end."""
    if op.name == _CONVOLUTION:
        weight = tensor_type_of(op.operands[1])
        given: list[list[int] | None] = [_constants(op, position) for position in (3, 4, 5)]
        kernel = None if weight is None else [size for size in weight[0][2:] if size is not None]
        if constant_of(op.operands[6]) or weight is None or kernel is None or len(kernel) < len(weight[0]) - 2:
            return None
    else:
        if constant_of(op.operands[_CEIL_MODES[op.name]]):
            return None
        kernel, strides, padding = (_constants(op, position) for position in (1, 2, 3))
        dilation = _constants(op, 4) if op.name == "torch.aten.max_pool2d" else [1, 1]
        given = [strides or kernel, padding, dilation]
    known = [each for each in given if each]
    if kernel is None or len(known) < 3:
        return None
    strides, padding, dilation = (each * len(kernel) if len(each) == 1 else each for each in known)
    lengths = [apart * (size - 1) + 1 for size, apart in zip(kernel, dilation, strict=True)]
    return list(zip(lengths, strides, padding, strict=True))


def _constants(op: ir.Operation, position: int) -> list[int] | None:
    values: Sequence[ir.Value] | None = list_of(op.operands[position])
    found = [constant_of(each) for each in values or ()]
    known = [each for each in found if each is not None]
    return known if values is not None and len(known) == len(found) else None
