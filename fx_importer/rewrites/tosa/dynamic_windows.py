"""Images of dynamic height or width under windows that do not reach their end: TOSA's windows fill them exactly."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Size
from fx_importer.mlir.emit_torch import constant_of
from fx_importer.mlir.emit_torch_tosa import list_of, tensor_type_of
from fx_importer.mlir.emit_tosa_sizes import TosaSizeOps
from fx_importer.mlir.walk import rewrite

_CONVOLUTION = "torch.aten.convolution"
_CEIL_MODES = {"torch.aten.max_pool2d": 5, "torch.aten.avg_pool2d": 4}
"""The operand of pools that rounds their number of windows up."""


@rewrite("fx-importer-crop-to-windows", ops=(_CONVOLUTION, *_CEIL_MODES), emitter=TosaSizeOps)
def crop_to_windows(op: ir.Operation, emit: TosaSizeOps) -> None:
    """Slice the end of dynamic axes off that no window of a convolution or pool reaches."""
    x, windows = emit.builtin(op.operands[0]), _windows(op)
    if x is None or windows is None:
        return
    cropped = x
    for axis, (length, step, pad) in enumerate(windows, start=len(emit.shape(x)) - len(windows)):
        if emit.shape(x)[axis] is None and step > 1:
            cropped = emit.range_of(cropped, axis, 0, _reached(emit, emit.dim(x, axis), length, step, pad))
    if cropped != x:
        op.operands[0] = emit.value("torch_c.from_builtin_tensor", op.operands[0].type, cropped)


def _reached(emit: TosaSizeOps, size: Size, length: int, step: int, pad: int) -> Size:
    """Return how many elements windows of ``length`` reach, behind a padding that is not counted."""
    last = emit.compute("div_floor", emit.compute("sub", emit.compute("add", size, 2 * pad), length), step)
    end = emit.compute("add", emit.compute("mul", last, step), length)
    return emit.compute("sub", end, 2 * pad) if pad else end


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
