"""Constant tensors that conversions left as ``arith.constant``, in the dialect that the rest of the module is in."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir


def constants_to_tosa(module: ir.Operation) -> None:
    """Turn every constant tensor into a ``tosa.const``."""
    _rewrite(module, "tosa.const", "values")


def constants_to_stablehlo(module: ir.Operation) -> None:
    """Turn every constant tensor into a ``stablehlo.constant``; uninitialized ones are zeros."""
    _initialize(module)
    _rewrite(module, "stablehlo.constant", "value")


def literals_to_stablehlo(module: ir.Operation) -> None:
    """Turn constants of unsigned integers, which folding makes torch's again, into ``stablehlo.constant``."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "torch_c.to_builtin_tensor" and _owner_name(op.operands[0]) == "torch.vtensor.literal":
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit)
    for op in found:
        literal = op.operands[0].owner
        value = literal.attributes["value"]
        if value.type == op.results[0].type:
            new = ir.Operation.create(
                "stablehlo.constant",
                results=[value.type],
                attributes={"value": value},
                loc=op.location,
                ip=ir.InsertionPoint(op),
            )
            op.results[0].replace_all_uses_with(new.result)
            op.erase()
            if not list(literal.results[0].uses):
                literal.erase()


def _initialize(module: ir.Operation) -> None:
    """Turn every ``tensor.empty`` of a static shape into constant zeros."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "tensor.empty" and not op.operands:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit)
    for op in found:
        zeros = ir.Attribute.parse(f"dense<{_zero(op.results[0].type)}> : {op.results[0].type}", module.context)
        new = ir.Operation.create(
            "arith.constant",
            results=[op.results[0].type],
            attributes={"value": zeros},
            loc=op.location,
            ip=ir.InsertionPoint(op),
        )
        op.results[0].replace_all_uses_with(new.result)
        op.erase()


def _zero(type_: ir.Type) -> str:
    element = ir.RankedTensorType(type_).element_type
    if isinstance(element, ir.ComplexType):
        return "(0.0, 0.0)"
    return "0" if isinstance(element, ir.IntegerType) else "0.0"


def _owner_name(value: ir.Value) -> str:
    return "" if isinstance(value.owner, ir.Block) else value.owner.name


def _rewrite(module: ir.Operation, name: str, attribute: str) -> None:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit)
    for op in found:
        type_ = op.results[0].type
        if isinstance(ir.RankedTensorType(type_).element_type, ir.IndexType):
            continue  # neither dialect has them
        try:
            new = ir.Operation.create(
                name,
                results=[type_],
                attributes={attribute: op.attributes["value"]},
                loc=op.location,
                ip=ir.InsertionPoint(op),
            )
        except TypeError:
            # The bindings cannot read a complex ``dense``. Both constants are spelled alike. (A ``dense_resource`` they
            # can; as text it would lose what it holds.)
            new = ir.Operation.parse(str(op).replace("arith.constant", name, 1), context=module.context)
            ir.InsertionPoint(op).insert(new)
        op.results[0].replace_all_uses_with(new.result)
        op.erase()
