"""Loops after the check of an assumption end where it is violated."""

from __future__ import annotations

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.walk import RewriteStep, operations
from fx_importer.rewrites import guard_stablehlo, guard_tosa

STABLEHLO = """
func.func @main(%n: tensor<i32>, %step: tensor<i32>) -> (tensor<i32>, tensor<i1> {{{check}}}) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %moves = stablehlo.compare GT, %step, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %last = stablehlo.while(%i = %n) : tensor<i32> cond {{
    %more = stablehlo.compare LT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    %next = stablehlo.add %i, %step : tensor<i32>
    stablehlo.return %next : tensor<i32>
  }}
  return %last, %moves : tensor<i32>, tensor<i1>
}}"""

TOSA = """
func.func @main(%n: tensor<i32>, %step: tensor<i32>) -> (tensor<i32>, tensor<i1> {{{check}}}) {{
  %zero = "tosa.const"() <{{values = dense<0> : tensor<i32>}}> : () -> tensor<i32>
  %moves = tosa.greater %step, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %last = tosa.while_loop (%i = %n) : (tensor<i32>) -> tensor<i32> {{
    %more = tosa.greater %zero, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    tosa.yield %more : tensor<i1>
  }} do {{
  ^bb0(%i: tensor<i32>):
    %next = tosa.add %i, %step : (tensor<i32>, tensor<i32>) -> tensor<i32>
    tosa.yield %next : tensor<i32>
  }}
  return %last, %moves : tensor<i32>, tensor<i1>
}}"""


@pytest.mark.parametrize(
    ("guard", "text"), [(guard_stablehlo, STABLEHLO), (guard_tosa, TOSA)], ids=["stablehlo", "tosa"]
)
def test_loops_end_where_an_assumption_is_violated(guard: RewriteStep, text: str) -> None:
    context = new_context()
    load_dialects(context)
    for check, conjunctions in (('fx_importer.check = "`step > 0` is True"', 1), ("", 0)):
        module = ir.Module.parse(text.format(check=check), context)
        guard(module.operation)
        assert module.operation.verify()
        assert len(operations(module.operation, {"stablehlo.and", "tosa.logical_and"})) == conjunctions


CALLS = """
func.func private @outer(%n: tensor<i32>) -> tensor<i32> {
  %0 = func.call @inner(%n) : (tensor<i32>) -> tensor<i32>
  return %0 : tensor<i32>
}
func.func private @inner(%n: tensor<i32>) -> tensor<i32> {
  DIVISION
  return %0 : tensor<i32>
}
func.func private @safe(%n: tensor<i32>) -> tensor<i32> {
  return %n : tensor<i32>
}
func.func @main(%n: tensor<i32>) -> (tensor<i32>, tensor<i1> {fx_importer.check = "n is 3"}) {
  %0 = func.call @outer(%n) : (tensor<i32>) -> tensor<i32>
  %1 = CHECK : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %2 = func.call @outer(%0) : (tensor<i32>) -> tensor<i32>
  %3 = func.call @safe(%2) : (tensor<i32>) -> tensor<i32>
  return %3, %1 : tensor<i32>, tensor<i1>
}"""


@pytest.mark.parametrize(
    ("guard", "division", "check"),
    [
        (guard_stablehlo, "%0 = stablehlo.divide %n, %n : tensor<i32>", "stablehlo.compare EQ, %0, %0"),
        (
            guard_tosa,
            "%0 = tosa.intdiv %n, %n : (tensor<i32>, tensor<i32>) -> tensor<i32>",
            "tosa.equal %0, %0",
        ),
    ],
    ids=["stablehlo", "tosa"],
)
def test_functions_take_whether_the_checks_before_a_call_hold(guard: RewriteStep, division: str, check: str) -> None:
    context = new_context()
    load_dialects(context)
    text = CALLS.replace("DIVISION", division).replace("CHECK", check)
    module = ir.Module.parse(text, context)
    guard(module.operation)
    assert module.operation.verify()
    functions = functions_of(module)
    arguments = {name: len(function.type.inputs) for name, function in functions.items()}
    assert arguments == {"outer": 2, "inner": 2, "safe": 1, "main": 1}
    before, after, _ = operations(functions["main"].operation, ("func.call",))
    assert "dense<true>" in str(before.operands[1].owner)
    assert after.operands[1].owner.name == check.split()[0]
    (chosen,) = operations(functions["inner"].operation, ("stablehlo.select", "tosa.select"))
    assert chosen.operands[0] == functions["inner"].entry_block.arguments[1]


SCATTER = """
func.func @main(%x: tensor<1x5x1xf32>, %i: tensor<1x2xi32>, %n: tensor<i32>)
    -> (tensor<1x5x1xf32>, tensor<i1> {fx_importer.check = "n is 3"}) {
  %rows = tosa.gather %x, %i : (tensor<1x5x1xf32>, tensor<1x2xi32>) -> tensor<1x2x1xf32>
  %y = tosa.scatter %x, %i, %rows : (tensor<1x5x1xf32>, tensor<1x2xi32>, tensor<1x2x1xf32>) -> tensor<1x5x1xf32>
  %three = "tosa.const"() <{values = dense<3> : tensor<i32>}> : () -> tensor<i32>
  %check = tosa.equal %n, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
  return %y, %check : tensor<1x5x1xf32>, tensor<i1>
}"""


def test_checks_are_computed_before_indices_are_read() -> None:
    context = new_context()
    load_dialects(context)
    module = ir.Module.parse(SCATTER, context)
    guard_tosa(module.operation)
    assert module.operation.verify()
    of_gather, of_scatter = operations(module.operation, ("tosa.select",))
    assert "dense<0> : tensor<1x1xi32>" in str(of_gather.operands[2].owner)
    assert "dense<[[0, 1]]> : tensor<1x2xi32>" in str(of_scatter.operands[2].owner)  # none twice


DIVISION = """
func.func @main(%x: tensor<i32>, %n: tensor<i32>) -> (tensor<i32>, tensor<i32>, tensor<i1> {fx_importer.check = ""}) {
  %four = stablehlo.constant dense<4> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %holds = stablehlo.compare NE, %n, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %known = stablehlo.divide %x, %four : tensor<i32>
  %asked = stablehlo.divide %x, %n : tensor<i32>
  return %known, %asked, %holds : tensor<i32>, tensor<i32>, tensor<i1>
}"""


def test_division_by_a_constant_is_left():
    context = new_context()
    load_dialects(context)
    module = ir.Module.parse(DIVISION, context)
    guard_stablehlo(module.operation)
    assert len(operations(module.operation, {"stablehlo.select"})) == 1
