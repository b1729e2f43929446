"""Pools of images of dynamic height or width: the C++ lowering requires windows that reach the end."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.mlir.emit.torch_tosa import constants_in, tensor_type_of
from fx_importer.mlir.emit.tosa_sizes import TosaSizeOps
from fx_importer.mlir.walk import rewrite

_FLOATS = ("f16", "bf16", "f32")
_CEIL_MODES = {"torch.aten.max_pool2d": 5, "torch.aten.avg_pool2d": 4}
"""The operand of pools that rounds their number of windows up."""


@rewrite("fx-importer-dynamic-pools-to-tosa", ops=_CEIL_MODES, emitter=TosaSizeOps)
def dynamic_pools_to_tosa(op: ir.Operation, emit: TosaSizeOps) -> None:
    """Lower pools of floats without padding along dynamic axes, cropped to their windows, with channels last."""
    x, kind = emit.builtin(op.operands[0]), tensor_type_of(op.results[0])
    kernel, strides, padding = (constants_in(op.operands[position]) for position in (1, 2, 3))
    if x is None or kind is None or not kernel or strides is None or padding is None or any(padding):
        return
    shape, element = emit.shape(x), emit.element(x)
    greatest = op.name == "torch.aten.max_pool2d"
    if len(shape) != 4 or None not in shape[2:] or element not in (*_FLOATS, *(["i8"] if greatest else [])):
        return
    if constant_of(op.operands[_CEIL_MODES[op.name]]) or (greatest and set(constants_in(op.operands[4]) or ()) > {1}):
        return
    kernel, strides = (setting * 2 if len(setting) == 1 else setting for setting in (kernel, strides or kernel))
    image = emit.transpose(x, [0, 2, 3, 1])
    for axis, (length, step) in enumerate(zip(kernel, strides, strict=True), start=1):
        image = emit.crop_to_windows(image, axis, length, step) if step > 1 else image
    settings = {"kernel": emit.array(kernel), "stride": emit.array(strides), "pad": emit.array([0] * 4)}
    type_ = emit.tensor([shape[0], None, None, shape[1]], element)
    if greatest:
        settings["nan_mode"] = emit.attribute("#tosa.nan_mode<PROPAGATE>")
        result = emit.op("tosa.max_pool2d", [type_], [image], settings).result
    else:
        zero = emit.const(emit.attribute(f"dense<0.0> : tensor<1x{element}>"))
        settings["acc_type"] = emit.attribute("f32")
        result = emit.op("tosa.avg_pool2d", [type_], [image, zero, zero], settings).result
    result = emit.transpose(result, [0, 3, 1, 2])
    result.set_type(emit.tensor(*kind))
    replace(op, emit.value("torch_c.from_builtin_tensor", op.results[0].type, result))
