"""Checks of sizes whose outcome is known: of loops that run, over axes of equal sizes."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer, replace
from fx_importer.mlir.walk import operations, rewrite

_CONSTANTS = ("arith.constant", "index.constant")


@rewrite("fx-importer-simplify-size-checks")
def simplify_size_checks(module: ir.Operation) -> None:
    """Simplify the bounds that runtime verification compares, where the sizes n of all loops are positive.

    The first and last index are min(n - 1, 0) = 0 and max(n - 1, 0) = n - 1, and the size that these ask for is
    (n - 1) + 1 = n. The comparison left is of two sizes, and canonicalization folds it if they are the same.
    """
    for branch in operations(module, ("scf.if",)):
        sizes = _positive(branch.operands[0])
        for op in operations(branch, ("index.mins", "index.maxs")) if sizes else ():
            last, zero = op.operands
            if _constant(zero) == 0 and (size := _before(last)) is not None and size in sizes:
                replace(op, zero if op.name == "index.mins" else last)
        for op in operations(branch, ("index.add",)) if sizes else ():
            last, one = op.operands
            if _constant(one) == 1 and (size := _before(last)) is not None:
                replace(op, size)


def _positive(condition: ir.Value) -> set[ir.Value]:
    """Return the values that are positive where ``condition`` holds: it is a conjunction of 0 < n."""
    match producer(condition):
        case "arith.andi":
            left, right = condition.owner.operands
            return _positive(left) | _positive(right)
        case "index.cmp":
            zero, size = condition.owner.operands
            is_less = str(condition.owner.attributes["pred"]) == "#index<cmp_predicate slt>"
            return {size} if is_less and _constant(zero) == 0 else set()
    return set()


def _before(value: ir.Value) -> ir.Value | None:
    """Return n where ``value`` is n - 1, else None."""
    if producer(value) != "index.sub":
        return None
    size, one = value.owner.operands
    return size if _constant(one) == 1 else None


def _constant(value: ir.Value) -> int | None:
    return ir.IntegerAttr(value.owner.attributes["value"]).value if producer(value) in _CONSTANTS else None
