"""Removal of no-ops in linalg."""

import re

import numpy as np
import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.pipelines import run_text

X = "tensor<2x3xf32>"
SAME, ROW = "affine_map<(i, j) -> (i, j)>", "affine_map<(i, j) -> (j)>"


def lines(body: str, result: str = X, others: str = "") -> list[str]:
    context = new_context()
    load_dialects(context)
    text = f"func.func @main(%x: {X}, %e: {X}{others}) -> {result} {{\n{body}\nreturn %r : {result} }}"
    module = ir.Module.parse(text, context)
    run_text("builtin.module(fx-importer-fold-linalg-no-ops,func.func(canonicalize,cse))", module)
    module.operation.verify()
    text = module.operation.get_asm(use_local_scope=True)
    return [line.strip().split(" = ", 1)[-1] for line in text.splitlines() if " = " in line]


def generic(arithmetic: str, kind: str = X, indexing: str = SAME) -> str:
    """Return a structured operation over ``%x``, as ``%a``, and ``%c``, as ``%b``."""
    return f"""%r = linalg.generic {{
        indexing_maps = [{SAME}, {indexing}, {SAME}], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %c : {X}, {kind}) outs(%e : {X}) {{
      ^bb0(%a: f32, %b: f32, %o: f32):
        %v = {arithmetic} : f32
        linalg.yield %v : f32 }} -> {X}"""


def constant(number: str, kind: str = X) -> str:
    return f"%c = arith.constant dense<{number}> : {kind}\n"


@pytest.mark.parametrize("arithmetic", ["arith.mulf %a, %b", "arith.mulf %b, %a", "arith.divf %a, %b"])
@pytest.mark.parametrize(("kind", "indexing"), [(X, SAME), ("tensor<3xf32>", ROW)])
def test_removed(arithmetic, kind, indexing):
    assert lines(constant("1.0", kind) + generic(arithmetic, kind, indexing)) == []


def comparison(number: str) -> list[str]:
    """Return what is left of a comparison of float32 with a constant of float64."""
    body = f"""%c = arith.constant {number} : f64
    %r = linalg.generic {{indexing_maps = [{SAME}, {SAME}], iterator_types = ["parallel", "parallel"]}}
      ins(%x : {X}) outs(%e : {X}) {{
      ^bb0(%a: f32, %o: f32):
        %d = arith.extf %a : f32 to f64
        %v = arith.cmpf ogt, %d, %c : f64
        %s = arith.select %v, %a, %o : f32
        linalg.yield %s : f32 }} -> {X}"""
    return [line for line in lines(body) if line.startswith("arith.")]


def test_comparison_is_in_the_type_that_has_the_constant():
    assert comparison("20.0")[:2] == ["arith.constant 2.000000e+01 : f32", "arith.cmpf ogt, %in, %cst : f32"]


@pytest.mark.parametrize("number", ["0.1", "1.0e39"])
def test_comparison_with_a_number_that_float32_lacks_is_kept(number):
    assert "arith.extf %in : f32 to f64" in comparison(number)


@pytest.mark.parametrize(
    ("number", "arithmetic"),
    [
        ("0.0", "arith.addf %a, %b"),  # changes -0.0 to 0.0
        ("0.0", "arith.mulf %a, %b"),  # infinities and NaN
        ("1.0", "arith.divf %b, %a"),
        ("[[1.0, 1.0, 1.0], [1.0, 1.0, 2.0]]", "arith.mulf %a, %b"),
    ],
)
def test_kept(number, arithmetic):
    assert any(arithmetic.split()[0] in line for line in lines(constant(number) + generic(arithmetic)))


def test_broadcasting_product_with_ones_is_kept():
    body = f"""%c = arith.constant dense<1.0> : {X}
    %r = linalg.generic {{indexing_maps = [{ROW}, {SAME}, {SAME}], iterator_types = ["parallel", "parallel"]}}
      ins(%y, %c : tensor<3xf32>, {X}) outs(%e : {X}) {{
      ^bb0(%a: f32, %b: f32, %o: f32):
        %v = arith.mulf %a, %b : f32
        linalg.yield %v : f32 }} -> {X}"""
    assert any("linalg.generic" in line for line in lines(body, others=", %y: tensor<3xf32>"))


@pytest.mark.parametrize(("wide", "single"), [("0.1", "1.000000e-01"), ("1.0e300", "0x7F800000")])
def test_scalar_constants_are_rounded_once(wide, single):
    body = f"%d = arith.constant {wide} : f64\n%c = arith.constant dense<2.0> : {X}\n" + generic("arith.addf %a, %n")
    body = body.replace("%v =", "%n = arith.truncf %d : f64 to f32\n%v =")
    found = lines(body)
    assert f"arith.constant {single} : f32" in found
    assert not any("truncf" in line for line in found)


WEIGHT = "%w = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>\n"


def product(left: str, right: str) -> str:
    kinds = {"%t": "tensor<3x2xf32>"}
    return f"""%i = tensor.empty() : tensor<3x2xf32>
    %t = linalg.transpose ins(%w : {X}) outs(%i : tensor<3x2xf32>) permutation = [1, 0]
    %r = linalg.matmul ins({left}, {right} : {kinds.get(left, X)}, {kinds.get(right, X)}) outs(%o : RESULT) -> RESULT"""


@pytest.mark.parametrize("weight", [WEIGHT, ""], ids=["constant", "argument"])
@pytest.mark.parametrize(
    ("left", "right", "size", "maps"),
    [
        ("%x", "%t", 2, ["(d0, d2)", "(d1, d2)", "(d0, d1)"]),
        ("%t", "%x", 3, ["(d2, d0)", "(d2, d1)", "(d0, d1)"]),
    ],
)
def test_products_absorb_transposes(left, right, size, maps, weight):
    kind = f"tensor<{size}x{size}xf32>"
    body = weight + product(left, right).replace("RESULT", kind)
    found = lines(body, kind, f", %o: {kind}" + ("" if weight else f", %w: {X}"))
    (matmul,) = (line for line in found if line.startswith("linalg."))
    assert re.findall(r"-> (\(.*?\))>", matmul) == maps
    assert not any("transpose" in line for line in found)


@pytest.mark.parametrize(("order", "is_absorbed"), [([0, 2, 1], True), ([1, 0, 2], False), ([1, 2, 0], False)])
def test_batch_of_a_product_stays_the_first_axis(order, is_absorbed):
    shape = [0, 0, 0]
    for axis, size in zip(order, (2, 4, 3), strict=True):
        shape[axis] = size
    stored = f"tensor<{'x'.join(map(str, shape))}xf32>"
    body = f"""%w = arith.constant dense<{np.arange(24.0).reshape(shape).tolist()}> : {stored}
    %i = tensor.empty() : tensor<2x4x3xf32>
    %t = linalg.transpose ins(%w : {stored}) outs(%i : tensor<2x4x3xf32>) permutation = {order}
    %r = linalg.batch_matmul ins(%y, %t : tensor<2x5x4xf32>, tensor<2x4x3xf32>)
      outs(%o : tensor<2x5x3xf32>) -> tensor<2x5x3xf32>"""
    found = lines(body, "tensor<2x5x3xf32>", ", %y: tensor<2x5x4xf32>, %o: tensor<2x5x3xf32>")
    assert any("linalg.transpose" in line for line in found) is not is_absorbed
