"""Gathers from axes without elements: StableHLO has none, because a slice of one element must fit into the axis."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.walk import operations

_MARK = "fx_importer.gathered"


def pad_gathered_axes(module: ir.Operation) -> None:
    """Append a zero to each axis of dynamic size that a gather indexes, while sizes are unknown."""
    for gather in operations(module, ("stablehlo.gather", "stablehlo.dynamic_gather")):
        type_ = ir.RankedTensorType(gather.operands[0].type)
        numbers = stablehlo_d.GatherDimensionNumbers(gather.attributes["dimension_numbers"])
        axes = {axis for axis in numbers.start_index_map if type_.is_dynamic_dim(axis)}
        if not axes:
            continue
        emit = StablehloOps.before(gather)
        none, high = (emit.array([int(axis in padded) for axis in range(type_.rank)]) for padded in ((), axes))
        zero = emit.zeros(ir.RankedTensorType.get([], type_.element_type))
        attributes = {
            "edge_padding_low": none,
            "edge_padding_high": high,
            "interior_padding": none,
            _MARK: emit.attribute("unit"),
        }
        gather.operands[0] = emit.op("stablehlo.pad", [type_], [gather.operands[0], zero], attributes).result


def remove_padding(module: ir.Operation) -> None:
    """Remove the zeros that `pad_gathered_axes` appended to tensors with elements, once sizes are known."""
    for pad in operations(module, ("stablehlo.pad",)):
        if _MARK in pad.attributes and 0 not in ir.RankedTensorType(pad.operands[0].type).shape:
            replace(pad, pad.operands[0])
