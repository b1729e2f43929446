"""Loops with conditions on IREE."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from fx_importer import lower
from fx_importer.engines import backend_named
from fx_importer.mlir.bindings import ir

pytest.importorskip("iree.compiler")

X = torch.tensor([1.0, 2.0])


def counted(x):
    return while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * 2 + n), (torch.tensor(0), x))


def loop_in_a_loop(x):
    return while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, counted(x)[1] / 8), (torch.tensor(0), x))


def unread(x):
    """The body reads neither its second value nor its condition."""
    return while_loop(
        lambda go, y, x: go.clone(), lambda go, y, x: (x.sum() < 20, x + 1, x * 2), (torch.tensor(True), X, x)
    )


def never(x):
    return while_loop(lambda x, y: x.sum() < 0, lambda x, y: (x + 1, y * 2), (x, x - 1))


def equal_after_a_step(x):
    return while_loop(lambda x, y: x.sum() < 9, lambda x, y: (x + y, x + y), (x, x * 3))


def equal(x):
    return while_loop(lambda x, y: x.sum() < 9, lambda x, y: (x * 2, y * 2), (x, x.clone()))


@pytest.mark.slow_rows("^(stablehlo|tosa)-(never|equal|equal_after_a_step|counted)$")
@pytest.mark.parametrize("function", [counted, loop_in_a_loop, unread, never, equal_after_a_step, equal])
@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_loops_end_with_the_values_of_eager(
    output_type: str, function: Callable[..., tuple[torch.Tensor, ...]]
) -> None:
    lowered = lower(function, X, output_type=output_type)
    torch.testing.assert_close(lowered.caller(backend="iree")(X), function(X))


def test_value_that_was_one_of_two_equal_ones(parse: Callable[[str], ir.Module]) -> None:
    """``d`` takes the last ``b``, which is equal to ``a``, and the results have the condition."""
    module = parse("""
        func.func @main(%x: tensor<2xf32>, %h: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<1xi1>) {
          %go = arith.constant true
          %i = arith.constant 0 : index
          %limit = arith.constant 9.0 : f32
          %r:4 = scf.while (%c = %go, %a = %x, %b = %x, %d = %h)
              : (i1, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> (i1, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
            scf.condition(%c) %c, %a, %b, %d : i1, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
          } do {
          ^bb0(%c: i1, %a: tensor<2xf32>, %b: tensor<2xf32>, %d: tensor<2xf32>):
            %next = arith.addf %a, %d : tensor<2xf32>
            %first = tensor.extract %next[%i] : tensor<2xf32>
            %again = arith.cmpf olt, %first, %limit : f32
            scf.yield %again, %next, %next, %b : i1, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
          }
          %last = tensor.from_elements %r#0 : tensor<1xi1>
          return %r#2, %r#3, %last : tensor<2xf32>, tensor<2xf32>, tensor<1xi1>
        }""")
    a, d = X, 3 * X
    while a[0] < 9:
        a, d = a + d, a
    results = backend_named("iree").load(module)(X, 3 * X)
    torch.testing.assert_close(results, (a, d, torch.tensor([False])))
