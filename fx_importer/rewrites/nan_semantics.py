"""NaN in comparisons: the C++ lowerings compare and select, and a comparison with NaN is false."""

from __future__ import annotations

from collections.abc import Callable

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Emitter, is_used, producer

# How arith numbers its predicates.
_OGT, _OLT, _ORD, _UGT, _ULT = 2, 4, 7, 9, 11
_EXTREMES = {_OGT: "arith.maximumf", _UGT: "arith.maximumf", _OLT: "arith.minimumf", _ULT: "arith.minimumf"}
_OTHERS = {"arith.maximumf": "arith.minimumf", "arith.minimumf": "arith.maximumf"}


def nans_in_linalg(module: ir.Operation) -> None:
    """Make the larger, or smaller, of two floats NaN where one is; and its position that of the first NaN.

    Where the body of a ``linalg.generic`` selects one of the two numbers that it compares, that is meant. Where it
    selects between two positions, it is looking for the extreme's: NaN is more extreme than all but a NaN before it.
    """
    for select in _found(module, {"arith.select"}):
        compare = select.operands[0].owner
        if producer(select.operands[0]) != "arith.cmpf" or not _in(select, "linalg.generic"):
            continue
        predicate = ir.IntegerAttr(compare.attributes["predicate"]).value
        a, b = compare.operands
        emit = Emitter(ir.InsertionPoint(select), select.location)
        if predicate not in _EXTREMES:
            continue
        extreme, chosen = _EXTREMES[predicate], list(select.operands)[1:]
        if chosen in ([a, b], [b, a]):
            extreme = extreme if chosen == [a, b] else _OTHERS[extreme]
            select.results[0].replace_all_uses_with(emit.value(extreme, a.type, a, b))
            select.erase()
        elif predicate in (_OGT, _OLT) and any(use.owner.name == extreme for use in a.uses):
            more = _compare(emit, _UGT if predicate == _OGT else _ULT, a, b)
            select.operands[0] = emit.value("arith.andi", "i1", more, _compare(emit, _ORD, b, b))
        if not is_used(compare.results[0]):
            compare.erase()


def _compare(emit: Emitter, predicate: int, a: ir.Value, b: ir.Value) -> ir.Value:
    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64, emit.context), predicate)
    return emit.op("arith.cmpf", ["i1"], [a, b], {"predicate": number}).result


def nans_in_stablehlo(module: ir.Operation) -> None:
    """Sort NaN as the largest number, stably; and find the first NaN as the extreme of a tensor that has one."""
    for op in _found(module, {"stablehlo.sort", "stablehlo.reduce"}):
        if op.name == "stablehlo.sort":
            op.attributes["is_stable"] = ir.BoolAttr.get(True, op.context)
        elif len(op.results) != 2:
            continue
        for compare in list(op.regions[0].blocks[0].operations):
            if compare.operation.name == "stablehlo.compare" and _is_of_floats(compare.operation):
                _admit_nan(compare.operation)


def _is_of_floats(compare: ir.Operation) -> bool:
    kind = ir.RankedTensorType(compare.operands[0].type).element_type
    return not isinstance(kind, ir.IntegerType | ir.ComplexType)


def _admit_nan(compare: ir.Operation) -> None:
    emit = Emitter(ir.InsertionPoint.after(compare), compare.location)
    a, b = compare.operands
    kind = compare.results[0].type
    direction = str(compare.attributes["comparison_direction"])

    def holds(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        attributes = {
            "comparison_direction": ir.Attribute.parse(f"#stablehlo<comparison_direction {name}>", emit.context),
        }
        if "compare_type" in compare.attributes:
            attributes["compare_type"] = compare.attributes["compare_type"]
        return emit.op("stablehlo.compare", [kind], [a, b], attributes).result

    def joined(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        return emit.value(f"stablehlo.{name}", kind, a, b)

    rules: dict[str, Callable[[], ir.Value]] = {
        "LT": lambda: joined("and", holds("EQ", a, a), holds("NE", b, b)),  # only b is NaN, so it comes last
        "GT": lambda: joined("and", holds("NE", a, a), holds("EQ", b, b)),  # only a is NaN, so it comes first
        "GE": lambda: holds("NE", a, a),  # the extreme is NaN
        "LE": lambda: holds("NE", a, a),
        "EQ": lambda: joined("and", holds("NE", a, a), holds("NE", b, b)),  # both are NaN
    }
    found = next(rule for name, rule in rules.items() if f" {name}>" in direction)
    together = joined("or", compare.results[0], found())
    compare.results[0].replace_all_uses_except(together, together.owner.operation)


def _found(module: ir.Operation, names: set[str]) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in names:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit)
    return found


def _in(op: ir.Operation, name: str) -> bool:
    parent = op.parent
    return parent is not None and parent.name == name
