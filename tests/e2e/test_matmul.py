"""Matrix products."""

import importlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fx_importer import lower
from fx_importer.fx_graph.operators import operator_named

from .harness import Case, check, integers, normal, table


def experts(x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Grouped product for experts as in `transformers`, opaque to tracing."""
    importlib.import_module("transformers.integrations.moe")  # registers it
    return torch.ops.transformers.grouped_mm_fallback(x, weights, ends)


def gradients_of_experts():
    """Return the operator of the gradients, which transformers 5.20 has not, and inputs."""
    importlib.import_module("transformers.integrations.moe")
    if (gradients := operator_named("transformers.grouped_mm_fallback_backward")) is None:
        pytest.skip("the installed transformers has no operator grouped_mm_fallback_backward")
    inputs = normal(6, 4), normal(3, 4, 5), torch.tensor([2, 2, 5]), normal(6, 5, seed=3)
    return lambda *given: gradients(*given), inputs


def grouped(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return F.grouped_mm(a, b, offs=ends)


ENDS = torch.tensor([2, 2, 16], dtype=torch.int32)
WIDE, TALL, STACK = (normal(*shape, dtype=torch.bfloat16) for shape in ((8, 16), (16, 8), (3, 16, 8)))


FP8 = normal(16, 32).to(torch.float8_e4m3fn), normal(48, 32, seed=2).to(torch.float8_e4m3fn).t()
BYTES = integers(17, 8, low=-128, high=128, dtype=torch.int8)
UNSIGNED = integers(17, 8, low=0, high=256, dtype=torch.uint8)


def int_mm(a: torch.Tensor, b: torch.Tensor):
    return torch.ops.aten._int_mm(a, b)


def scaled(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, *bias: torch.Tensor):
    return torch.ops.aten._scaled_mm(a, b, scale_a, scale_b, *bias, out_dtype=torch.float16, use_fast_accum=True)


def einsums(a: torch.Tensor, b: torch.Tensor):
    """Contract in several orders of axes."""
    equations = "bhid,bhjd->bhij", "bhid,bhjd->jihb", "ahid,bhjd->aijb", "ahid,bhjd->bja"
    return tuple(torch.einsum(equation, a, b) for equation in equations)


@pytest.mark.slow_rows("^integers-tosa$", "^scaled_mm.*-(tosa|stablehlo)$", "^int_mm.*-(tosa|stablehlo)$")
@table(
    Case("scaled_mm", lambda: (scaled, (*FP8, torch.tensor(2.0), torch.tensor(0.5)))),
    Case("scaled_mm_by_row", lambda: (scaled, (*FP8, normal(16, 1).abs(), normal(1, 48).abs(), normal(48).half()))),
    Case("int_mm", lambda: (int_mm, (BYTES, BYTES[:8]))),
    Case("int_mm_of_two_signs", lambda: (int_mm, (UNSIGNED, BYTES[:8]))),
    Case("int_mm_without_columns", lambda: (int_mm, (BYTES, BYTES[:8, :0]))),
    Case("mm", lambda: (torch.mm, (normal(3, 4), normal(4, 5)))),
    Case("bmm", lambda: (torch.bmm, (normal(2, 3, 4), normal(2, 4, 5)))),
    Case("broadcast", lambda: (torch.matmul, (normal(2, 1, 3, 4), normal(5, 4, 6)))),
    Case("vectors", lambda: (lambda m, v: (m @ v, v @ m.T, v @ v), (normal(3, 4), normal(4)))),
    Case("transposed", lambda: (lambda a, b: (a.T @ b, a.T @ b.T.contiguous().T), (normal(4, 3), normal(4, 5)))),
    Case("linear", lambda: (nn.Linear(4, 5), (normal(2, 3, 4),))),
    Case("linear_without_bias", lambda: (nn.Linear(4, 5, bias=False), (normal(3, 4),))),
    Case("linear_of_a_vector", lambda: (nn.Linear(4, 5), (normal(4),))),
    Case(
        "addmm",
        lambda: (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), (normal(5), normal(3, 4), normal(4, 5))),
    ),
    Case("baddbmm", lambda: (torch.baddbmm, (normal(2, 3, 5), normal(2, 3, 4), normal(2, 4, 5)))),
    Case("einsums", lambda: (einsums, (normal(2, 3, 4, 5), normal(2, 3, 6, 5)))),
    Case("outer", lambda: (torch.outer, (normal(3), normal(4)))),
    Case("bilinear", lambda: (nn.Bilinear(3, 4, 5), (normal(2, 3), normal(2, 4)))),
    Case("integers", lambda: (torch.mm, (integers(3, 4, low=-9, high=9), integers(4, 5, low=-9, high=9)))),
    Case("wide", lambda: (nn.Linear(300, 70), (normal(65, 300),))),
    Case("experts", lambda: (experts, (normal(6, 4), normal(3, 4, 5), torch.tensor([2, 2, 5])))),
    Case("gradients_of_experts", gradients_of_experts),
    Case("groups_of_rows", lambda: (grouped, (normal(16, 16, dtype=torch.bfloat16), STACK, ENDS))),
    Case("groups_of_columns", lambda: (grouped, (STACK.mT.contiguous(), normal(16, 16, dtype=torch.bfloat16), ENDS))),
    Case("groups_of_terms", lambda: (grouped, (WIDE, TALL, ENDS))),
    Case("mlp", lambda: (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (normal(3, 4),))),
)
def test_matmul(case, output_type):
    check(case, output_type)


class Tied(nn.Module):
    """Uses one weight as an embedding and, transposed, in products."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.weight = nn.Buffer(integers(24, 40, low=-9, high=9).to(dtype))
        self.batches = nn.Buffer(integers(2, 30, 40, low=-9, high=9).to(dtype))

    def forward(self, words: torch.Tensor):
        """Return products with a weight on either side."""
        read = self.weight[words]
        return read @ self.weight.T, self.weight @ read[0].T, read @ self.batches.mT, self.weight.T @ self.weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64], ids=str)
def test_weights_are_not_transposed(dtype):
    torch.manual_seed(0)
    model, words = Tied(dtype), integers(2, 5, low=0, high=23)
    lowered = lower(model, words, output_type="linalg")
    if not dtype.is_complex:  # a complex product is real products of computed matrices
        assert "linalg.transpose ins(%cst" not in lowered.module.operation.get_asm(use_local_scope=True)
    for result, expected in zip(lowered.run(words), model(words), strict=True):
        torch.testing.assert_close(result, expected, rtol=0, atol=0)  # sums of small integers are exact
