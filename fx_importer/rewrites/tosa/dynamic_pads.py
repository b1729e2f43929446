"""Lower ``pad`` with dynamic widths; negative widths crop."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size, producer
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.mlir.emit.torch_tosa import list_of
from fx_importer.mlir.emit.tosa_sizes import TosaSizeOps

_FLOATS = ("f16", "bf16", "f32")


def pad_to_tosa(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Return a tensor of floats padded with zeros; None for constant widths, and for other values."""
    x, given = emit.builtin(op.operands[0]), list_of(op.operands[1])
    if x is None or given is None or not _is_zero(op.operands[2]) or emit.element(x) not in _FLOATS:
        return None
    widths = [emit.size_of(each) for each in given]
    known = [each for each in widths if each is not None]
    if len(known) < len(widths) or all(isinstance(each, int) for each in known):
        return None
    rank = len(emit.shape(x))
    added: list[Size] = [0] * (2 * rank)
    cropped: list[Size] = [0] * (2 * rank)
    for place, width in enumerate(known):  # from the last axis on: before it, and behind it
        at = 2 * (rank - 1 - place // 2) + place % 2
        added[at] = emit.compute("max", width, 0)
        cropped[at] = emit.compute("max", emit.compute("sub", 0, width), 0)
    result = emit.pad_with_zeros(x, added)
    for axis in range(rank):
        before, behind = cropped[2 * axis : 2 * axis + 2]
        if before != 0 or behind != 0:
            rest = emit.compute("sub", emit.compute("sub", emit.dim(result, axis), before), behind)
            result = emit.range_of(result, axis, before, rest)
    return result


def _is_zero(value: ir.Value) -> bool:
    if producer(value) == "torch.constant.float":
        return ir.FloatAttr(value.owner.attributes["value"]).value == 0.0
    return constant_of(value) == 0
