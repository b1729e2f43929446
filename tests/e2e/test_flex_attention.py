"""flex_attention with score_mod and mask_mod, inlined, equal to eager."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import pytest
import torch
from torch.export import Dim
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils import _pytree as pytree

from fx_importer import ExportError, lower

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec", "ignore:.*flex_attention called without torch.compile")


@dataclass
class Case:
    score: Callable[..., Any] | None = None
    mask: Callable[..., Any] | None = None
    query: tuple[int, ...] = (2, 2, 8, 4)
    key: tuple[int, ...] = (2, 2, 6, 4)
    dtype: torch.dtype = torch.float32


CASES = {
    "score": Case(score=lambda m, s, b, h, i, j: torch.tanh(s * (h + 1)) - b + (i - j)),
    "captured parameter": Case(score=lambda m, s, b, h, i, j: s + m.bias[h, i, j]),
    "causal": Case(mask=lambda b, h, i, j: (i >= j) | (h == 0), score=lambda m, s, b, h, i, j: s * 2),
    "empty rows": Case(mask=lambda b, h, i, j: (i + b > j) & (i != 3)),
    "groups of heads": Case(query=(2, 4, 8, 4), mask=lambda b, h, i, j: i >= j),
    "half precision": Case(dtype=torch.bfloat16, mask=lambda b, h, i, j: i >= j),
    "double precision": Case(dtype=torch.float64),
}


class Attends(torch.nn.Module):
    def __init__(self, case: Case):
        super().__init__()
        self.case = case
        self.bias = torch.nn.Parameter(torch.linspace(-1, 1, 96).reshape(2, 8, 6))

    def forward(self, q, k, v):
        case, mask = self.case, None
        score = None if case.score is None else partial(case.score, self)
        if case.mask is not None:
            mask = create_block_mask(case.mask, q.shape[0], q.shape[1], q.shape[2], k.shape[2], device="cpu")
        grouped = q.shape[1] != k.shape[1]
        return flex_attention(q, k, v, score_mod=score, block_mask=mask, return_lse=True, enable_gqa=grouped)


def inputs_of(case: Case):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(case.dtype) for shape in (case.query, case.key, case.key)]


@pytest.mark.slow_rows("double|half|causal", "^score$", "^groups of heads$")
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(name):
    torch._dynamo.reset()  # Dynamo would reuse the graph of an earlier score_mod
    model, inputs = Attends(CASES[name]), inputs_of(CASES[name])
    results = lower(model, *inputs, output_type="linalg").run(*inputs)
    with torch.no_grad():
        expected = model(*inputs)
    for result, wanted in zip(pytree.tree_leaves(results), expected, strict=True):
        torch.testing.assert_close(result, wanted)


class AttendsUnderCond(torch.nn.Module):
    def forward(self, x):
        def attend(x):
            return flex_attention(x, x, x, score_mod=lambda s, b, h, i, j: s * (i - j))

        return torch.cond(x.sum() > 0, attend, lambda x: x.clone(), (x,))


def test_under_cond():
    torch._dynamo.reset()
    x = torch.rand(1, 2, 8, 4)
    lowered = lower(AttendsUnderCond(), x, output_type="linalg")
    for each in (x, -x):
        torch.testing.assert_close(lowered.run(each), AttendsUnderCond()(each))


@pytest.mark.slow
def test_dynamic_length():
    torch._dynamo.reset()
    example, model, length = torch.rand(1, 2, 8, 4), Attends(Case()), Dim("length", min=2, max=64)
    lowered = lower(model, *[example] * 3, dynamic_shapes=({2: length},) * 3, output_type="linalg")
    for size in (2, 5):
        x = torch.rand(1, 2, size, 4)
        for result, wanted in zip(lowered.run(x, x, x), model(x, x, x), strict=True):
            torch.testing.assert_close(result, wanted)


class AttendsByCachedWidth(torch.nn.Module):
    """Reads a number behind ``lru_cache``, which Dynamo computes again."""

    def __init__(self, cached: bool):
        super().__init__()
        self.widths = [2]
        self.width = lru_cache(lambda: self.widths[-1]) if cached else lambda: 2
        assert self.width() == 2
        self.widths.append(6)

    def forward(self, x):
        return flex_attention(x, x, x, score_mod=lambda s, b, h, i, j: torch.where(i - j < self.width(), s, -1e9))


@pytest.mark.filterwarnings("ignore:.*lru_cache")
def test_exported_program_is_checked():
    torch._dynamo.reset()
    x = inputs_of(Case())[0]
    with pytest.raises(
        ExportError, match="result 0 of the exported program is wrong on the example inputs. Tensor-likes are not"
    ):
        lower(AttendsByCachedWidth(cached=True), x, output_type="raw")
    torch._dynamo.reset()
    lower(AttendsByCachedWidth(cached=False), x, output_type="raw")


class AttendsAndCounts(torch.nn.Module):
    total: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.total.add_(x.sum())
        return flex_attention(x, x, x, score_mod=lambda s, b, h, i, j: s * self.total)


def test_check_leaves_buffers():
    torch._dynamo.reset()
    model = AttendsAndCounts()
    lower(model, torch.ones(1, 2, 8, 4), output_type="raw", mutation="functional")
    assert model.total == 0
