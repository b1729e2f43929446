"""Complex tensors put together and taken apart, which the C++ lowerings do not do."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.rewrites.torch.region_types import Carrier


def complex_parts_to_stablehlo(module: ir.Operation) -> None:
    """Replace ``torch.aten.complex`` and ``torch.aten.view_as_real``, of operands of one shape."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in ("torch.aten.complex", "torch.aten.view_as_real"):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit)
    for op in found:
        emit = Carrier(ir.InsertionPoint(op), op.location)
        if op.name == "torch.aten.view_as_real":
            new = _taken_apart(op, emit)
        elif op.operands[0].type == op.operands[1].type:
            carrier = emit.carrier_type(op.results[0].type)
            whole = emit.value("stablehlo.complex", carrier, *map(emit.send, op.operands))
            new = emit.receive(whole, op.results[0].type)
        else:
            continue
        op.results[0].replace_all_uses_with(new)
        op.erase()


def _taken_apart(op: ir.Operation, emit: Carrier) -> ir.Value:
    """Both parts, side by side along a new last axis."""
    text = str(op.results[0].type)
    shape, _, dtype = text.removeprefix("!torch.vtensor<[").removesuffix(">").partition("],")
    sizes = shape.split(",")[:-1]
    part = f"!torch.vtensor<[{','.join(sizes)}],{dtype}>"
    column = f"!torch.vtensor<[{','.join([*sizes, '1'])}],{dtype}>"
    axis = emit.integer(len(sizes))
    given = emit.send(op.operands[0])
    columns: list[ir.Value] = []
    for name in ("real", "imag"):
        read = emit.value(f"stablehlo.{name}", emit.carrier_type(emit.type(part)), given)
        columns.append(emit.value("torch.aten.unsqueeze", column, emit.receive(read, part), axis))
    both = emit.value("torch.prim.ListConstruct", f"!torch.list<{column.removeprefix('!torch.')}>", *columns)
    return emit.value("torch.aten.cat", text, both, axis)
