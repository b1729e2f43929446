"""Removal of no-ops in StableHLO."""

import re

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.pipelines import run_text
from fx_importer.rewrites.stablehlo.dot_dimensions import merged_axes

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


HEADS, SCORES, SQUARE = "tensor<2x4x3x8xf32>", "tensor<8x3x3xf32>", "tensor<2x4x3x3xf32>"
MERGED = f"""%a = stablehlo.reshape %q : ({HEADS}) -> tensor<8x3x8xf32>
    %b = stablehlo.reshape %k : ({HEADS}) -> tensor<8x3x8xf32>
    %p = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [2]
      : (tensor<8x3x8xf32>, tensor<8x3x8xf32>) -> {SCORES}
    """


def test_dot_general_absorbs_merged_batches():
    body = MERGED + f"%r = stablehlo.reshape %p : ({SCORES}) -> {SQUARE}"
    (product,) = operations(body, SQUARE, f", %q: {HEADS}, %k: {HEADS}")
    assert "batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]" in product


def test_dot_general_keeps_merged_batches_of_a_result_that_is_not_reshaped():
    body = MERGED + f"%r = stablehlo.negate %p : {SCORES}"
    assert len(operations(body, SCORES, f", %q: {HEADS}, %k: {HEADS}")) == 4


def test_dot_general_keeps_batches_that_are_merged_otherwise_on_each_side():
    body = (MERGED + f"%r = stablehlo.reshape %p : ({SCORES}) -> {SQUARE}").replace(
        f"%k : ({HEADS})", "%k : (tensor<4x2x3x8xf32>)"
    )
    assert len(operations(body, SQUARE, f", %q: {HEADS}, %k: tensor<4x2x3x8xf32>")) == 4


def test_transpose_of_a_matmul_exchanges_its_operands():
    body = """%p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    %r = stablehlo.transpose %p, dims = [1, 0] : (tensor<2x4xf32>) -> tensor<4x2xf32>"""
    (product,) = operations(body, "tensor<4x2xf32>", ", %w: tensor<3x4xf32>")
    assert product.startswith("stablehlo.dot_general %arg1, %arg0, contracting_dims = [0] x [1]")


def test_reshapes_around_elementwise_operations_cancel():
    body = f"""%c = stablehlo.constant dense<2.0> : tensor<6xf32>
    %f = stablehlo.reshape %x : ({X}) -> tensor<6xf32>
    %d = stablehlo.divide %f, %c : tensor<6xf32>
    %r = stablehlo.reshape %d : (tensor<6xf32>) -> {X}"""
    assert [each.split()[0] for each in operations(body)] == ["stablehlo.constant", "stablehlo.divide"]


def test_reshape_before_a_broadcast_folds_through_elementwise_operations():
    body = f"""%c = stablehlo.constant dense<2.0> : tensor<2x1xf32>
    %f = stablehlo.reshape %v : (tensor<2xf32>) -> tensor<2x1xf32>
    %d = stablehlo.divide %f, %c : tensor<2x1xf32>
    %r = stablehlo.broadcast_in_dim %d, dims = [0, 1] : (tensor<2x1xf32>) -> {X}"""
    names = [each.split()[0] for each in operations(body, others=", %v: tensor<2xf32>")]
    assert names == ["stablehlo.constant", "stablehlo.divide", "stablehlo.broadcast_in_dim"]


def test_roots_and_broadcasts_of_splats_are_constants():
    body = f"""%c = stablehlo.constant dense<2.0> : tensor<f32>
    %s = stablehlo.rsqrt %c : tensor<f32>
    %b = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> {X}
    %r = stablehlo.multiply %x, %b : {X}"""
    constant, _ = operations(body)
    assert constant.startswith("stablehlo.constant dense<0.707106769>")


def test_merged_axes():
    assert merged_axes((2, 3, 4), (6, 4, 1)) == [[0, 1], [2], []]
    assert merged_axes((1, 3, 1), (3,)) == [[0, 1, 2]]
    assert merged_axes((6, 4), (2, 3, 4)) is None
    assert merged_axes((0, 3), (0,)) is None


@pytest.mark.parametrize(
    ("numbers", "left", "right", "result"),
    [
        ("batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]", "2x4x3x5", "2x4x5x7", "2x4x3x7"),
        ("batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3]", "2x3x4x5", "2x7x4x5", "2x4x3x7"),
        ("contracting_dims = [2] x [1]", "2x3x5", "7x5", "2x3x7"),
        ("contracting_dims = [1, 2] x [1, 0]", "2x3x5", "5x3", "2"),
    ],
)
def test_matmuls_are_named_in_linalg_after_their_axes_are_merged(numbers, left, right, result):
    context = new_context()
    load_dialects(context)
    kinds = [f"tensor<{each}xf32>" for each in (left, right, result)]
    text = f"""func.func @main(%x: {kinds[0]}, %y: {kinds[1]}) -> {kinds[2]} {{
    %r = stablehlo.dot_general %x, %y, {numbers} : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}
    return %r : {kinds[2]} }}"""
    module = ir.Module.parse(text, context)
    run_text("builtin.module(fx-importer-merge-dot-dimensions)", module)
    module.operation.verify()
    (product,) = [line for line in str(module).splitlines() if "dot_general" in line]
    rank = 3 if "batching" in numbers else 2
    assert all(len(each.split("x")) == rank + 1 for each in re.findall("tensor<(.*?)>", product))


ARITHMETIC = """%i = stablehlo.iota dim = 0 : tensor<1xi8>
%a = stablehlo.constant dense<127> : tensor<1xi8>
%b = stablehlo.add %a, %a : tensor<1xi8>
%m = stablehlo.minimum %b, %i : tensor<1xi8>
%w = stablehlo.multiply %m, %a : tensor<1xi8>
%f = stablehlo.convert %w : (tensor<1xi8>) -> tensor<1xf32>
%r = stablehlo.reshape %f : (tensor<1xf32>) -> tensor<f32>"""


def test_arithmetic_of_splats_wraps_around():
    assert operations(ARITHMETIC, "tensor<f32>") == ["stablehlo.constant dense<2.000000e+00> : tensor<f32>"]


@pytest.mark.parametrize("number, rounded", [("0.1", "1.000000e-01"), ("1.0e300", "0x7F800000")])
def test_conversion_of_a_splat_is_folded(number: str, rounded: str):
    body = f"%c = stablehlo.constant dense<{number}> : tensor<f64>\n"
    body += "%r = stablehlo.convert %c : (tensor<f64>) -> tensor<f32>"
    assert operations(body, "tensor<f32>") == [f"stablehlo.constant dense<{rounded}> : tensor<f32>"]


@pytest.mark.parametrize(
    "number, kind, rounded", [("1.00390626", "f64", "1.000000e+00"), ("16842753", "i64", "1.677720e+07")]
)
def test_splats_of_16_bits_are_rounded_to_float32_first(number: str, kind: str, rounded: str):
    """In float32 the number lies halfway between two of bfloat16; exactly, it is nearer to the upper one."""
    body = f"%c = stablehlo.constant dense<{number}> : tensor<{kind}>\n"
    body += f"%r = stablehlo.convert %c : (tensor<{kind}>) -> tensor<bf16>"
    assert operations(body, "tensor<bf16>") == [f"stablehlo.constant dense<{rounded}> : tensor<bf16>"]
