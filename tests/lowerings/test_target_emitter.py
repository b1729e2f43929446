"""Emitter methods for users' lowerings: each is emitted into each target, executed, and compared with eager."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from fx_importer import UnsupportedProgramError, lower, lowers

TARGETS = ("linalg", "tosa", "stablehlo")
x, y, row = (
    torch.linspace(-2, 2, 12).reshape(3, 4),
    torch.linspace(0.5, 3, 12).reshape(3, 4),
    torch.tensor([1.0, -2, 3, 0]),
)
ints, others = torch.tensor([[7, -7, 3], [0, 5, -1]], dtype=torch.int32), torch.tensor([2, 3, 1], dtype=torch.int32)
bools = x > 0


@dataclass(frozen=True)
class Row:
    name: str
    rule: Callable[..., Any]
    """Takes an emitter and values."""
    eager: Callable[..., torch.Tensor]
    inputs: tuple[torch.Tensor, ...]
    dynamic: bool = True
    """Whether it is also tested with a dynamic first dimension."""
    tosa: bool = True
    """Whether TOSA supports it with a dynamic dimension."""


ROWS = [
    Row("add", lambda e, a, b: e.add(a, b), torch.add, (x, row)),
    Row("sub", lambda e, a, b: e.sub(b, a), lambda a, b: b - a, (x, row)),
    Row("mul", lambda e, a, b: e.mul(a, b), torch.mul, (x, y)),
    Row("div", lambda e, a, b: e.div(a, b), torch.div, (x, y)),
    Row(
        "integers",
        lambda e, a, b: e.div(e.mul(a, 3), b),
        lambda a, b: (a * 3).div(b, rounding_mode="trunc"),
        (ints, others),
    ),
    Row("pow", lambda e, a, b: e.pow(b, a), lambda a, b: b**a, (x, y)),
    Row("maximum", lambda e, a, b: e.maximum(a, b), torch.maximum, (x, row)),
    Row("minimum", lambda e, a, b: e.minimum(a, b), torch.minimum, (x, row)),
    Row("clamp", lambda e, a: e.clamp(a, -1, 0.5), lambda a: a.clamp(-1, 0.5), (x,)),
    Row("relu", lambda e, a: e.relu(a), torch.relu, (x,)),
    Row("neg", lambda e, a, b: e.add(e.neg(a), e.cast(e.neg(b), "f32")), lambda a, b: -a - b, (torch.ones(2, 3), ints)),
    *(
        Row(name, lambda e, a, name=name: getattr(e, name)(a), getattr(torch, name), (x,))
        for name in ("abs", "sigmoid", "exp", "tanh", "erf", "sin", "cos", "floor", "ceil")
    ),
    *(
        Row(name, lambda e, a, name=name: getattr(e, name)(a), getattr(torch, name), (y,))
        for name in ("log", "sqrt", "rsqrt", "reciprocal")
    ),
    *(
        Row(name, lambda e, a, b, word=word: getattr(e, word)(a, b), getattr(torch, name), (x, row))
        for name, word in (
            ("eq", "equal"),
            ("gt", "greater"),
            ("ge", "greater_equal"),
            ("lt", "less"),
            ("le", "less_equal"),
        )
    ),
    Row(
        "bools",
        lambda e, a, b: e.logical_or(e.logical_not(a), e.logical_and(a, b)),
        lambda a, b: ~a | (a & b),
        (bools, y > 1),
    ),
    Row("select", lambda e, c, a: e.select(c, a, -1.0), lambda c, a: torch.where(c, a, -1.0), (bools, x)),
    Row("to_integers", lambda e, a: e.cast(a, "i32"), lambda a: a.int(), (x * 3,)),
    Row(
        "to_floats",
        lambda e, a, b: e.add(e.cast(a, "f32"), e.cast(b, "f32")),
        lambda a, b: a.float() + b,
        (ints, ints > 1),
    ),
    Row("to_bools", lambda e, a: e.cast(a, "i1"), lambda a: a.bool(), (ints,)),
    Row("to_half", lambda e, a: e.cast(a, "f16"), lambda a: a.half(), (x,)),
    Row(
        "constant",
        lambda e, a: e.mul(a, e.constant(row)),
        lambda a: a * torch.tensor([1.0, -2, 3, 0], device=a.device),
        (x,),
    ),
    Row("flat", lambda e, a: e.reshape(a, [-1]), lambda a: a.reshape(-1), (x,)),
    Row("reshape", lambda e, a: e.reshape(a, [-1, 2, 2]), lambda a: a.reshape(-1, 2, 2), (x,)),
    Row("to_a_scalar", lambda e, a: e.reshape(e.sum(a, [0, 1]), []), lambda a: a.sum(), (x,)),
    Row("transpose", lambda e, a: e.transpose(a, [1, 0]), lambda a: a.T, (x,)),
    Row("broadcast", lambda e, a, b: e.broadcast(b, a), lambda a, b: b.expand_as(a).clone(), (x, row)),
    Row("concat", lambda e, a, b: e.concat([a, b, a], 0), lambda a, b: torch.cat([a, b, a]), (x, y)),
    Row("concat_last", lambda e, a, b: e.concat([a, b], -1), lambda a, b: torch.cat([a, b], -1), (x, y)),
    Row("slice", lambda e, a: e.slice(a, [1, 0], [2, 3]), lambda a: a[1:3, :3].clone(), (x,), dynamic=False),
    Row("sum", lambda e, a: e.sum(a, [1]), lambda a: a.sum(1), (x,)),
    Row("sum_kept", lambda e, a: e.sum(a, [-1], keepdim=True), lambda a: a.sum(-1, keepdim=True), (x,)),
    Row("sum_of_all", lambda e, a: e.sum(a, [0, 1]), lambda a: a.sum((0, 1)), (x,)),
    Row("amax", lambda e, a: e.amax(a, [0]), lambda a: a.amax(0), (x,)),
    Row("amax_of_integers", lambda e, a: e.amax(a, [0], keepdim=True), lambda a: a.amax(0, keepdim=True), (ints,)),
    Row("amin", lambda e, a: e.amin(a, [1]), lambda a: a.amin(1), (x,)),
    Row("matmul", lambda e, a, b: e.matmul(a, e.transpose(b, [1, 0])), lambda a, b: a @ b.T, (x, y), tosa=False),
    Row(
        "batch_matmul",
        lambda e, a, b: e.matmul(e.reshape(a, [-1, 2, 2]), e.reshape(b, [-1, 2, 2])),
        lambda a, b: a.reshape(-1, 2, 2) @ b.reshape(-1, 2, 2),
        (x, y),
    ),
]


def operator_of(row: Row) -> Any:
    """Return a custom operator that computes ``row`` in eager PyTorch."""
    names = [f"a{i}" for i in range(len(row.inputs))]
    torch.library.define(f"emitting::{row.name}", f"({', '.join(f'Tensor {name}' for name in names)}) -> Tensor")
    torch.library.impl(f"emitting::{row.name}", "CompositeExplicitAutograd", row.eager)
    return getattr(torch.ops.emitting, row.name).default


def model_of(row: Row) -> Callable[..., torch.Tensor]:
    def model(*inputs):
        return OPERATORS[row.name](*inputs)

    return model


OPERATORS = {row.name: operator_of(row) for row in ROWS}


@functools.cache
def results(target: str, dynamic: bool) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return the results of each row, lowered and in eager PyTorch. All rows are in one program, which is faster."""
    rows = [row for row in ROWS if not dynamic or (row.dynamic and (target != "tosa" or row.tosa))]

    def model(*inputs):
        given = iter(inputs)
        return [OPERATORS[row.name](*(next(given) for _ in row.inputs)) for row in rows]

    given = [each for row in rows for each in row.inputs]
    shapes = None
    if dynamic:
        sizes = [torch.export.Dim(f"rows_{i}", min=2, max=100) for i in range(len(rows))]
        own = [size for row, size in zip(rows, sizes, strict=True) for _ in row.inputs]
        shapes = (tuple({0: size} if each.ndim == 2 else None for each, size in zip(given, own, strict=True)),)
    rules = [lowers(OPERATORS[row.name], into=target)(row.rule) for row in rows]
    lowered = lower(model, *given, output_type=target, lowerings=rules, dynamic_shapes=shapes)
    if dynamic:
        given = [torch.cat([each, each]) if each.ndim == 2 else each for each in given]
    found = lowered.caller(backend="jit" if dynamic and target == "tosa" else None)(*given)
    return {row.name: (a, b) for row, a, b in zip(rows, found, model(*given), strict=True)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_static_sizes(row: Row, target: str):
    torch.testing.assert_close(*results(target, False)[row.name], rtol=1e-5, atol=1e-5)


@pytest.mark.slow_rows(unless="-linalg$")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("row", [row for row in ROWS if row.dynamic], ids=lambda row: row.name)
def test_dynamic_sizes(row: Row, target: str):
    if target == "tosa" and not row.tosa:
        size = {0: torch.export.Dim("rows", min=2, max=100)}
        rule = lowers(OPERATORS[row.name], into=target)(row.rule)
        with pytest.raises(UnsupportedProgramError, match="TOSA cannot reshape to .*more than one dynamic size"):
            lower(model_of(row), *row.inputs, output_type=target, lowerings=rule, dynamic_shapes=((size, size),))
        return
    torch.testing.assert_close(*results(target, True)[row.name], rtol=1e-5, atol=1e-5)
