"""Expansion of scalar operations that MLIR's conversions fail on."""

import math

import pytest
import torch

from fx_importer.rewrites.llvm.scalar_expansion import expand_scalars


def test_absolute_values_of_integers(parse, jit):
    text = "func.func @main(%a: i64) -> i64 { %r = math.absi %a : i64\n return %r : i64 }"
    module = parse(text)
    expand_scalars(module.operation)
    assert module.operation.verify()
    assert "math." not in str(module)
    assert [jit(text)(value)[0] for value in (-7, 0, 7, -(2**63))] == [7, 0, 7, -(2**63)]


@pytest.mark.parametrize(
    "source, target, steps", [("f64", "f16", 2), ("f64", "bf16", 2), ("f64", "f32", 1), ("f32", "f16", 1)]
)
def test_truncations_go_through_float32(parse, source, target, steps):
    body = f"%r = arith.truncf %a : {source} to {target}\n return %r : {target}"
    module = parse(f"func.func @main(%a: {source}) -> {target} {{ {body} }}")
    expand_scalars(module.operation)
    assert module.operation.verify()
    assert str(module).count("arith.truncf") == steps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_copysign(jit, dtype):
    element = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    kind = f"tensor<4x{element}>"
    run = jit(
        f"func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{ %r = math.copysign %a, %b : {kind} return %r : {kind} }}"
    )
    x, y = torch.tensor([2, -2, -0.0, math.inf], dtype=dtype), torch.tensor([-0.0, 3, 1, -math.inf], dtype=dtype)
    (found,), expected = run(x, y), torch.copysign(x, y)
    assert torch.equal(found, expected)
    assert torch.equal(found.signbit(), expected.signbit())


@pytest.mark.parametrize("operation, expected", [("ctpop", [0, 2, 32]), ("ctlz", [32, 29, 0])])
def test_counts_of_bits(jit, operation, expected):
    kind = "tensor<3xi32>"
    run = jit(f"func.func @main(%a: {kind}) -> {kind} {{ %r = math.{operation} %a : {kind} return %r : {kind} }}")
    assert run(torch.tensor([0, 6, -1], dtype=torch.int32))[0].tolist() == expected
