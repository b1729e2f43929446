"""NaN in comparisons: the C++ lowerings compare and select, and a comparison with NaN is false."""

from __future__ import annotations

from collections.abc import Callable

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import CMPF, ArithOps
from fx_importer.mlir.emit.emitter import attributes_of, is_used, producer
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.walk import rewrite

_EXTREMES = {
    CMPF["ogt"]: "arith.maximumf",
    CMPF["ugt"]: "arith.maximumf",
    CMPF["olt"]: "arith.minimumf",
    CMPF["ult"]: "arith.minimumf",
}
_OPPOSITE = {"arith.maximumf": "arith.minimumf", "arith.minimumf": "arith.maximumf"}
_UNORDERED = {CMPF["ogt"]: "ugt", CMPF["olt"]: "ult"}


@rewrite("fx-importer-nans-in-linalg", ops=("arith.select",), emitter=ArithOps)
def nans_in_linalg(select: ir.Operation, emit: ArithOps) -> None:
    """Propagate NaN through maximum and minimum; the index of the extreme is the first NaN's.

    Where the body of a ``linalg.generic`` selects one of the two floats that it compares, it computes the extreme.
    Where it selects between two indices, it computes an argmax or argmin: NaN is more extreme than any number, and the
    first NaN wins.
    """
    compare, parent = select.operands[0].owner, select.parent
    if producer(select.operands[0]) != "arith.cmpf" or parent is None or parent.name != "linalg.generic":
        return
    predicate = ir.IntegerAttr(compare.attributes["predicate"]).value
    if predicate not in _EXTREMES:
        return
    a, b = compare.operands
    extreme, chosen = _EXTREMES[predicate], list(select.operands)[1:]
    if chosen in ([a, b], [b, a]):
        extreme = extreme if chosen == [a, b] else _OPPOSITE[extreme]
        select.results[0].replace_all_uses_with(emit.value(extreme, a.type, a, b))
        select.erase()
    elif predicate in _UNORDERED and any(use.owner.name == extreme for use in a.uses):
        wins = emit.compare_floats(_UNORDERED[predicate], a, b)
        select.operands[0] = emit.value("arith.andi", "i1", wins, emit.compare_floats("ord", b, b))
    if not is_used(compare.results[0]):
        compare.erase()


@rewrite("fx-importer-nans-in-stablehlo", ops=("stablehlo.sort", "stablehlo.reduce"))
def nans_in_stablehlo(op: ir.Operation) -> None:
    """Sort NaN as the largest number, stably; and make argmax and argmin return the index of the first NaN."""
    if op.name == "stablehlo.sort":
        op.attributes["is_stable"] = ir.BoolAttr.get(True, op.context)
    elif len(op.results) != 2:
        return
    for compare in list(op.regions[0].blocks[0].operations):
        if compare.operation.name == "stablehlo.compare" and _is_of_floats(compare.operation):
            _order_nan(compare.operation)


def _is_of_floats(compare: ir.Operation) -> bool:
    kind = ir.RankedTensorType(compare.operands[0].type).element_type
    return not isinstance(kind, ir.IntegerType | ir.ComplexType)


def _order_nan(compare: ir.Operation) -> None:
    """Make ``compare`` of floats true also where NaN decides: see the comments for each direction."""
    emit = StablehloOps(ir.InsertionPoint.after(compare), compare.location)
    a, b = compare.operands
    kind = compare.results[0].type
    attributes = attributes_of(compare)
    direction = str(attributes["comparison_direction"])

    def both(one: ir.Value, other: ir.Value) -> ir.Value:
        return emit.stablehlo("and", kind, one, other)

    def is_nan(x: ir.Value) -> ir.Value:
        return emit.compare("NE", x, x, attributes.get("compare_type"))

    def is_number(x: ir.Value) -> ir.Value:
        return emit.compare("EQ", x, x, attributes.get("compare_type"))

    holds_for_nan: dict[str, Callable[[], ir.Value]] = {
        "LT": lambda: both(is_number(a), is_nan(b)),  # NaN comes last
        "GT": lambda: both(is_nan(a), is_number(b)),  # NaN comes first
        "GE": lambda: is_nan(a),  # the extreme is NaN
        "LE": lambda: is_nan(a),
        "EQ": lambda: both(is_nan(a), is_nan(b)),
    }
    with_nan = next(emit_nan for name, emit_nan in holds_for_nan.items() if f" {name}>" in direction)()
    either = emit.stablehlo("or", kind, compare.results[0], with_nan)
    compare.results[0].replace_all_uses_except(either, either.owner.operation)
