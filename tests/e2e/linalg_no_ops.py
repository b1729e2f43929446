"""Counts no-ops in a linalg module by kind, independently of the passes that remove them."""

from __future__ import annotations

from collections import Counter

from fx_importer.mlir.bindings import ir

PURE = ("linalg.", "tensor.", "arith.", "math.", "complex.")
CASTS = {"tensor.cast", "arith.truncf", "arith.extf", "arith.trunci", "arith.extsi", "arith.extui", "arith.index_cast"}
ONE, MINUS_ZERO = ("1.000000e+00", "1"), ("-0.000000e+00", "0")
NEUTRAL = {
    "arith.mulf": ((0, 1), ONE),
    "arith.muli": ((0, 1), ONE),
    "arith.divf": ((1,), ONE),
    "arith.addf": ((0, 1), MINUS_ZERO),  # 0.0 is not neutral: -0.0 + 0.0 is 0.0
    "arith.addi": ((0, 1), MINUS_ZERO),
}
"""Operations that are no-ops if one of these operands is one of these constants."""


def linalg_no_ops(module: ir.Module) -> dict[str, int]:
    """Return the number of no-ops of each kind."""
    found: Counter[str] = Counter()
    constants: Counter[str] = Counter()

    def visit(op: ir.Operation) -> ir.WalkResult:
        name = op.name
        if name.startswith(PURE) and op.results and not any(list(result.uses) for result in op.results):
            found[f"dead {name}"] += not _asserts(op)
        if name == "arith.constant":
            constants[op.get_asm(use_local_scope=True, large_elements_limit=64).split("arith.constant")[1]] += 1
        if name in CASTS:
            found[f"{name} to the same type"] += op.results[0].type == op.operands[0].type
            found[f"{name} of a constant"] += _producer(op.operands[0]) == "arith.constant"
        found["tensor.cast twice"] += name == "tensor.cast" and _producer(op.operands[0]) == name
        if name in NEUTRAL:
            sides, numbers = NEUTRAL[name]
            found[f"{name} by its neutral element"] += any(_constant(op.operands[side]) in numbers for side in sides)
        if name == "linalg.transpose" and _producer(op.operands[0]) == "arith.constant":
            users = {use.owner.name for use in op.results[0].uses}
            found["weight transposed for a product"] += bool(users & {"linalg.matmul", "linalg.batch_matmul"})
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    found["duplicate constant"] += sum(count - 1 for count in constants.values())
    return dict(+found)


def _asserts(op: ir.Operation) -> bool:
    found: list[str] = []

    def visit(each: ir.Operation) -> ir.WalkResult:
        found.append(each.name)
        return ir.WalkResult.ADVANCE

    op.walk(visit)
    return "cf.assert" in found


def _producer(value: ir.Value) -> str:
    return "" if isinstance(value.owner, ir.Block) else value.owner.name


def _constant(value: ir.Value) -> str:
    """Return the text of the scalar that ``value`` is, possibly as a block argument of a structured operation."""
    if isinstance(value.owner, ir.Block):
        op = value.owner.owner.operation
        number = ir.BlockArgument(value).arg_number
        if op.name != "linalg.generic" or number >= len(op.operands) - len(op.results):
            return ""
        value = op.operands[number]
    if _producer(value) != "arith.constant":
        return ""
    text = value.owner.get_asm(large_elements_limit=8).split("arith.constant ")[1]
    return text.split(" : ")[0].removeprefix("dense<").removesuffix(">")
