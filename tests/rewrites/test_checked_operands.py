"""Loops after the check of an assumption end where it is violated."""

from __future__ import annotations

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
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
