"""Removal of no-ops in StableHLO."""

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.pipelines import run_text

X = "tensor<2x3xf32>"


def operations(body: str, result: str = X, others: str = "") -> list[str]:
    context = new_context()
    load_dialects(context)
    text = f"func.func @main(%x: {X}{others}) -> {result} {{\n{body}\nreturn %r : {result} }}"
    module = ir.Module.parse(text, context)
    run_text("builtin.module(fx-importer-fold-stablehlo-no-ops,func.func(canonicalize,cse))", module)
    module.operation.verify()
    return [line.split(" = ", 1)[1] for line in str(module).splitlines() if " = stablehlo" in line]


def constant(number: str, kind: str = X) -> str:
    return f"%c = stablehlo.constant dense<{number}> : {kind}\n"


BROADCAST = "%s = stablehlo.constant dense<1.0> : tensor<f32>\n%c = stablehlo.broadcast_in_dim %s, dims = [] : "
BROADCAST += f"(tensor<f32>) -> {X}\n%r = stablehlo.multiply %c, %x : {X}"


@pytest.mark.parametrize(
    "body",
    [
        constant("1.0") + f"%r = stablehlo.multiply %x, %c : {X}",
        BROADCAST,
        constant("1.0") + f"%r = stablehlo.divide %x, %c : {X}",
        constant("0.0") + f"%r = stablehlo.subtract %x, %c : {X}",
        constant("-0.0") + f"%r = stablehlo.add %x, %c : {X}",
        f"%r = stablehlo.convert %x : {X}",
        f"%r = stablehlo.slice %x [0:2, 0:3] : ({X}) -> {X}",
        f"%t = stablehlo.transpose %x, dims = [1, 0] : ({X}) -> tensor<3x2xf32>\n"
        f"%r = stablehlo.transpose %t, dims = [1, 0] : (tensor<3x2xf32>) -> {X}",
        f"%t = stablehlo.reshape %x : ({X}) -> tensor<6xf32>\n%r = stablehlo.reshape %t : (tensor<6xf32>) -> {X}",
        f"%r = stablehlo.concatenate %x, dim = 0 : ({X}) -> {X}",
    ],
)
def test_removed(body):
    assert operations(body) == []


@pytest.mark.parametrize(
    "body",
    [
        constant("0.0") + f"%r = stablehlo.add %x, %c : {X}",  # changes -0.0 to 0.0
        constant("-0.0") + f"%r = stablehlo.subtract %x, %c : {X}",
        constant("0.0") + f"%r = stablehlo.multiply %x, %c : {X}",  # infinities and NaN
        constant("1.0") + f"%r = stablehlo.divide %c, %x : {X}",
        constant("[[1.0, 1.0, 1.0], [1.0, 1.0, 2.0]]") + f"%r = stablehlo.multiply %x, %c : {X}",
    ],
)
def test_kept(body):
    assert len(operations(body)) == 2


def test_transposing_broadcast_of_a_square_is_kept():
    square = "tensor<3x3xf32>"
    body = f"%r = stablehlo.broadcast_in_dim %y, dims = [1, 0] : ({square}) -> {square}"
    assert len(operations(body, square, f", %y: {square}")) == 1


def test_dot_general_absorbs_transposes():
    body = """%t = stablehlo.transpose %w, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
    %r = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0]
      : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>"""
    (product,) = operations(body, "tensor<2x4xf32>", ", %w: tensor<4x3xf32>")
    assert product.startswith("stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [1]")


def test_dot_general_keeps_transposes_of_free_dimensions():
    body = """%t = stablehlo.transpose %w, dims = [2, 1, 0] : (tensor<4x5x3xf32>) -> tensor<3x5x4xf32>
    %r = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0]
      : (tensor<2x3xf32>, tensor<3x5x4xf32>) -> tensor<2x5x4xf32>"""
    assert len(operations(body, "tensor<2x5x4xf32>", ", %w: tensor<4x5x3xf32>")) == 2
