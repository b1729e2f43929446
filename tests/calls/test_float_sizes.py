"""Folding of scalar StableHLO arithmetic on constants."""

import pytest

from fx_importer.calls.float_sizes import fold_scalars
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.mlir.functions import functions_of

I64, F64, I1 = "tensor<i64>", "tensor<f64>", "tensor<i1>"


def folded(body: str, result: str) -> str:
    """Return the defining text of ``%r`` in the function of ``body`` after folding."""
    text = f"func.func @main() -> {result} {{\n{body}\nreturn %r : {result}\n}}"
    load_dialects(context := new_context())
    with context:
        module = ir.Module.parse(text)
        block = functions_of(module)["main"].entry_block
        fold_scalars(block)
        return str(block.operations[-1].operation.operands[0].owner)


def constant(name: str, value: str, type_: str) -> str:
    return f"%{name} = stablehlo.constant dense<{value}> : {type_}\n"


@pytest.mark.parametrize(
    "body, type_, value",
    [
        (
            constant("a", "5", I64)
            + f"%f = stablehlo.convert %a : ({I64}) -> {F64}\n"
            + constant("s", "6.0e-01", F64)
            + f"%m = stablehlo.multiply %f, %s : {F64}\n"
            + f"%d = stablehlo.floor %m : {F64}\n"
            + f"%r = stablehlo.convert %d : ({F64}) -> {I64}",
            I64,
            "3",
        ),
        (constant("a", "-7", I64) + constant("b", "2", I64) + f"%r = stablehlo.divide %a, %b : {I64}", I64, "-3"),
        (constant("a", "7.5", F64) + constant("b", "2.5", F64) + f"%r = stablehlo.divide %a, %b : {F64}", F64, "3.0"),
        (
            constant("a", "7", I64)
            + constant("b", "2", I64)
            + f"%c = stablehlo.compare GT, %a, %b : ({I64}, {I64}) -> {I1}\n"
            + f"%r = stablehlo.select %c, %a, %b : {I1}, {I64}",
            I64,
            "7",
        ),
        (constant("a", "7", I64) + f"%r = stablehlo.reshape %a : ({I64}) -> tensor<1xi64>", "tensor<1xi64>", "7"),
    ],
    ids=["a-size-times-a-float", "towards-zero", "floats", "a-choice", "a-shape"],
)
def test_scalar_arithmetic_is_folded(body, type_, value):
    found = folded(body, type_)
    assert "stablehlo.constant" in found
    assert f"dense<{value}" in found


def test_division_by_zero_is_not_folded():
    body = constant("a", "7", I64) + constant("b", "0", I64) + f"%r = stablehlo.divide %a, %b : {I64}"
    assert "stablehlo.divide" in folded(body, I64)


def test_tensors_of_several_elements_are_not_folded():
    body = constant("a", "7", "tensor<2xi64>") + "%r = stablehlo.add %a, %a : tensor<2xi64>"
    assert "stablehlo.add" in folded(body, "tensor<2xi64>")
