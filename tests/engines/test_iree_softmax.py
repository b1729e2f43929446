"""Softmaxes of a dynamic number of rows on IREE, whose own code for them is slow."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from fx_importer import lower
from fx_importer.engines.function_extraction import extract_function
from fx_importer.engines.iree.iree_compiler import compile_to, prepare
from fx_importer.engines.iree.iree_targets import iree_target
from fx_importer.rewrites.iree.softmax import split_softmaxes

INF, NAN = torch.inf, torch.nan


@pytest.mark.slow_rows("^torch.float(16|64)$")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_numbers_are_those_of_eager(dtype):
    pytest.importorskip("iree.compiler", reason="the extra 'iree' is not installed")
    x = torch.randn(2, 11, 19, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[0, 1, 3:] = -INF
    x[0, 2] = -INF
    x[0, 3, 5] = NAN
    x[0, 4, 6] = INF
    x[0, 5], x[0, 6, 18] = 0, 1e4
    lowered = lower(lambda x: x.softmax(-1), x, output_type="linalg", dynamic_shapes=({1: Dim("rows")},))
    changed, _ = extract_function(lowered.module, "main")
    split_softmaxes(changed.operation)
    assert changed.operation.verify()
    assert str(changed).count("math.exp") == 2
    lowered.verify(backends=["iree"]).raise_if_failed()


def attention(q, k, v, mask):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)


def test_attention_is_not_raised_to_a_softmax_and_a_row_that_sees_nothing_is_zero(tmp_path):
    pytest.importorskip("iree.compiler", reason="the extra 'iree' is not installed")
    q, k, v = torch.randn(3, 1, 2, 5, 8, generator=torch.Generator().manual_seed(0)).unbind()
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril(-1)
    rows = Dim("rows")
    shapes = ({2: rows}, None, None, {2: rows})
    lowered = lower(attention, q, k, v, mask, output_type="linalg", dynamic_shapes=shapes)
    copy, _ = extract_function(lowered.module, "main")
    for kind, raised in (("as it is", True), ("prepared", False)):
        if kind == "prepared":
            prepare(copy, "none", iree_target("cpu"))
        compile_to(tmp_path / kind, copy, "none", iree_target("cpu"), flags=["--compile-to=flow"])
        assert ("linalg.softmax" in (tmp_path / kind).read_text()) == raised
    lowered.verify(backends=["iree"]).raise_if_failed()


@pytest.mark.parametrize(
    "function",
    [lambda x: (e := (x - x.amax(1, keepdim=True)).exp(), e.sum(1)), lambda x: x.log_softmax(-1), torch.exp],
    ids=["exponentials that are a result", "log_softmax", "exp"],
)
def test_others_stay(function):
    copy, _ = extract_function(lower(function, torch.ones(3, 5), output_type="linalg").module, "main")
    before = str(copy)
    split_softmaxes(copy.operation)
    assert str(copy) == before
