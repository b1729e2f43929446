"""Rewrites as passes: which operations they visit, in which order, with which emitter."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir, new_context
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.walk import RewriteStep, operations, rewrite
from fx_importer.pipelines import Stage, run_stage

NESTED = """
func.func @main(%c: i1) -> index {
  %a = arith.constant 1 : index
  %0 = scf.if %c -> index {
    %b = arith.constant 2 : index
    scf.yield %b : index
  } else {
    scf.yield %a : index
  }
  %d = arith.constant 3 : index
  return %0 : index
}
"""


def module() -> ir.Module:
    return ir.Module.parse(NESTED, new_context())


def test_operations_in_regions_come_before_the_one_around_them():
    found = operations(module().operation, ("arith.constant", "scf.if"))
    assert [op.name for op in found] == ["arith.constant"] * 2 + ["scf.if", "arith.constant"]


def test_module_rewrite_takes_the_module():
    seen: list[str] = []

    @rewrite("see")
    def see(op: ir.Operation) -> None:
        seen.append(op.name)

    assert isinstance(see, RewriteStep)
    assert str(see) == see.name == "see"
    see(module().operation)
    assert seen == ["builtin.module"]


def test_rewrite_may_emit_operations_of_the_same_name():
    visited: list[int] = []

    @rewrite("double", ops=("arith.constant",), emitter=ArithOps)
    def double(op: ir.Operation, emit: ArithOps) -> None:
        value = ir.IntegerAttr(op.attributes["value"]).value
        visited.append(value)
        replace(op, emit.index(2 * value))

    given = module()
    run_stage(Stage("s", "", (double,)), given)
    assert visited == [1, 2, 3]
    assert [f"constant {value} : index" in str(given) for value in (2, 4, 6)] == [True] * 3


def test_rewrite_without_an_emitter_takes_the_operation():
    names: list[str] = []

    @rewrite("names", ops=("scf.if",))
    def see(op: ir.Operation) -> None:
        names.append(op.name)

    see(module().operation)
    assert names == ["scf.if"]
