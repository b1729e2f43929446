"""TOSA's validator is run on one of several equal operations; diagnostics count all of them."""

from __future__ import annotations

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.options import Contract, TosaTarget
from fx_importer.pipelines import run_stage
from fx_importer.pipelines.tosa_contract import tosa_contract


def check(element: str) -> tuple[str, str]:
    """Run the contract on three sums, two of which are alike. Return the module before and after."""
    kind, other = f"tensor<4x{element}>", f"tensor<8x{element}>"
    context = new_context()
    load_dialects(context)
    module = ir.Module.parse(
        f"""
        func.func @main(%a: {kind}, %b: {other}) -> ({kind}, {other}) {{
          %0 = tosa.add %a, %a : ({kind}, {kind}) -> {kind}
          %1 = tosa.add %0, %a : ({kind}, {kind}) -> {kind}
          %2 = tosa.add %b, %b : ({other}, {other}) -> {other}
          return %1, %2 : {kind}, {other}
        }}
        """,
        context,
    )
    before = str(module)
    run_stage(tosa_contract(TosaTarget(), Contract.ERROR), module)
    return before, str(module)


def test_valid_module_is_unchanged():
    before, after = check("f32")
    assert before == after


def test_invalid_operations_are_counted():
    with pytest.raises(ir.MLIRError) as caught:
        check("f64")
    (found,) = caught.value.error_diagnostics
    assert found.message.startswith("not valid TOSA")
    assert found.message.endswith("narrow_floats=True takes and returns float32 for it), 3 times")
