"""Argument forms of operators that the samples of OpInfo do not have: each agrees with eager on every output type."""

# pyright: reportPrivateImportUsage=false
# `torch._foreach_*` are what optimizers call.

import pytest
import torch
import torch.nn.functional as F

from fx_importer import lower
from fx_importer.fx_graph.torch_internals import UNSIGNED_BOUNDS_WRAP

from .harness import LINALG, STABLEHLO, TOSA, Case, check, integers, normal, table

aten = torch.ops.aten
FLOAT = torch.float32

BYTES = torch.tensor([[0, 3, 5, 255]], dtype=torch.uint8)
AMOUNTS = torch.tensor([[-1, 1, 33, 7]])


def shifts(x, by):
    """Shift by tensors and numbers that are negative, or at least the width; eager shifts every bit out."""
    numbers = (x << -1, x >> -1, x << 70, x >> 70, x << 2, x >> 2)
    return x << by, x >> by, x.short() >> by.short(), x.byte() << by.byte(), x.byte() >> 9, 3 << by, *numbers


def quotients(n, x):
    """Divide without a rounding mode, which is given as None."""
    scalars = torch.div(n, 3, rounding_mode=None), torch.div(n > 0, 2, rounding_mode=None)
    return torch.div(n, n.abs() + 1, rounding_mode=None), *scalars, torch.div(x, x, rounding_mode=None)


def reductions(n, x):
    """Reduce in another dtype than the operand's."""
    means = n.mean(1, dtype=FLOAT), (n > 0).mean((0, 1), dtype=torch.float16), aten.mean.dim(n, None, dtype=FLOAT)
    norms = (
        aten.norm.ScalarOpt_dtype(x.half(), None, dtype=FLOAT),
        aten.norm.ScalarOpt_dim_dtype(x.half(), None, [], True, dtype=FLOAT),
        aten.norm.ScalarOpt_dim_dtype(x, 3, [0, -1], False, dtype=FLOAT),
    )
    return *means, *norms, n.sum(dtype=torch.bool), (x * 0).sum(1, dtype=torch.bool)


def clamps(x):
    """Clamp to bounds that the dtype does not have: unsigned ones wrap around, or since torch 2.15 do nothing."""
    if UNSIGNED_BOUNDS_WRAP:
        return x.clamp(2, -1), x.clamp(-3), x.clamp(max=-2)
    signed = x.char()
    return x.clamp(-3), x.clamp(4, 300), x.clamp_min(-1), signed.clamp(-300, 3), signed.clamp(max=200)


def nothing(x):
    """Compute tensors without elements, or of none."""
    pools = F.adaptive_avg_pool2d(x, (0, 2)), F.adaptive_max_pool2d(x, (1, 0), True), F.adaptive_avg_pool1d(x[0], 0)
    batches = F.adaptive_avg_pool2d(x[:0], 3), F.adaptive_max_pool2d(x[:0], 3)
    return *pools, *batches, torch.histc(x[:0], 3), x[0, 0, 0, 0].index_copy(0, torch.arange(0), x[0, 0, 0, :0])


def writes(x, n, index, value):
    """Write what has another dtype; average integers, rounded down."""
    strided = torch.as_strided_scatter(x, index[:2], [2], [3])
    means = n[0].scatter_reduce(0, index, n[1], "mean"), n[0].scatter_reduce(0, index, n[1], "mean", include_self=False)
    written = n.index_fill(1, index, value), aten.slice_scatter(n, x[:2]), aten.slice_scatter(n, x[:1], 0, 1)
    return *written, strided, *means, aten.expand(x[:, :1], [3, 4], implicit=True)


def lists(x, y):
    """Compute on lists of tensors, as optimizers do, also in place."""
    written = [x.clone(), y.clone()]
    torch._foreach_add_(written, 1.0)
    torch._foreach_addcdiv_(written, [x, y], [x.exp(), y.exp()], 0.5)
    torch._foreach_mul_(written, [written[0], x.sum()])
    torch._foreach_zero_(written[1:])
    torch._foreach_copy_(written[1:], [y[0]])
    scaled = torch._foreach_mul([x, y], [2.0, 3.0]), torch._foreach_pow(2.0, [x, y]), torch._foreach_norm([x, y], 1)
    return written, *scaled, torch._foreach_lerp([x], [x * 2], 0.3), torch._foreach_maximum([x, y], 0.1)


def gradients(n, x, h):
    """Compute gradients of operands of different dtypes; thresholds of integers are truncated."""
    mixed = tuple(
        (
            aten.threshold_backward(grad, y, -1.5),
            aten.hardsigmoid_backward(grad, y),
            aten.softshrink_backward(grad, y, 1),
        )
        for grad, y in ((n, x), (h, x), (x, n.byte()))
    )
    halves = aten.mish_backward(h, h), aten.mish_backward(x, h)
    return (
        mixed,
        halves,
        aten.mse_loss_backward(x, h, x, 0),
        aten.threshold_backward(n, n, -1.5),
        F.threshold(n, -1.5, 2.5),
    )


def products_of_three(x, y, z):
    """Sum products over axes that operands lack: one that all lack has size 0, or one part, or none."""
    lacking = (
        aten._trilinear(x, y, y, [0], [0], [0], [], 1),
        aten._trilinear(x, y, y, [0], [0], [0], [0], 0),
        aten._trilinear(x, y, y, [0], [0], [0], [0], 1),
    )
    return *lacking, aten._trilinear(x, y, z, [], [], [0], [1], 0), aten._trilinear(x, y, z, [], [], [0], [0, 1], 0)


@pytest.mark.slow_rows("^gradients-tosa$")
@table(
    Case("shifts", lambda: (shifts, (integers(2, 4, low=-90, high=90), AMOUNTS))),
    Case("quotients", lambda: (quotients, (integers(3, 4, low=-5, high=6), normal(3, 4)))),
    Case("reductions", lambda: (reductions, (integers(3, 4, low=-5, high=6), normal(3, 4)))),
    Case("clamps", lambda: (clamps, (BYTES,))),
    Case("nothing", lambda: (nothing, (normal(2, 3, 4, 4),))),
    Case(
        "writes",
        lambda: (
            writes,
            (
                normal(3, 4),
                integers(2, 4, low=-5, high=6),
                torch.tensor([0, 1, 0, 3]),
                torch.tensor(2, dtype=torch.uint8),
            ),
        ),
    ),
    Case(
        "gradients",
        lambda: (gradients, (integers(6, low=-3, high=4), normal(6), normal(6).half())),
    ),
    Case("products_of_three", lambda: (products_of_three, (normal(2, 3), normal(2, 3), normal(3)))),
    Case("lists", lambda: (lists, (normal(2, 3), normal(4)))),
)
def test_argument_forms(case, output_type):
    check(case, output_type)


@pytest.mark.parametrize("output_type", [LINALG, TOSA, STABLEHLO], ids=lambda each: each.value)
def test_inputs_written_through_lists(output_type):
    def subtracted(x, y):
        torch._foreach_sub_([x, y], [y.sum(), x.sum()], alpha=2)
        return x * 2

    ours, eager = ([normal(2, 3), normal(4, seed=1)] for _ in range(2))
    result = lower(subtracted, *ours, output_type=output_type, mutation="functional").run(*ours)
    torch.testing.assert_close((result, *ours), (subtracted(*eager), *eager))
