"""Ranks in threads of this process: what happens when they do not come to the same collective."""

from __future__ import annotations

import time

import pytest
import torch

from fx_importer.distributed import Mesh
from fx_importer.distributed.module_attributes import set_mesh
from fx_importer.engines.jit import ranks_in_process
from fx_importer.engines.jit.ranks_in_process import load_in_process
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir, load_dialects, new_context

REDUCED = """"stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.REDUCTION %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}
      : (tensor<3xf32>) -> tensor<3xf32>"""


def module(body: str) -> ir.Module:
    text = f"func.func @main(%p: tensor<i1>, %x: tensor<3xf32>) -> tensor<3xf32> {{\n{body}\n}}"
    context = new_context()
    load_dialects(context)
    made = ir.Module.parse(text, context)
    set_mesh(made, Mesh.get("tp=2"), lowered=True)
    return made


IN_A_BRANCH = module(
    f"""%result = "stablehlo.if"(%p) ({{
      %reduced = {REDUCED.replace("REDUCTION", "add")}
      stablehlo.return %reduced : tensor<3xf32>
    }}, {{
      stablehlo.return %x : tensor<3xf32>
    }}) : (tensor<i1>) -> tensor<3xf32>
    return %result : tensor<3xf32>"""
)
YES, NO, X = torch.tensor(True), torch.tensor(False), torch.arange(3.0)


def test_ranks_that_take_different_branches():
    call = load_in_process(IN_A_BRANCH)
    assert [float(each[2]) for (each,) in call([(YES, X), (YES, X)])] == [4, 4]
    with pytest.raises(UsageError, match="the ranks came to different collectives"):
        call([(YES, X), (NO, X)])
    assert [float(each[2]) for (each,) in call([(NO, X), (NO, X)])] == [2, 2]


def test_the_error_is_that_of_the_rank_that_failed():
    with pytest.raises(UsageError, match=r"has shape \[4\], but the function takes \[3\]"):
        load_in_process(IN_A_BRANCH)([(YES, X), (YES, torch.ones(4))])


def test_a_rank_that_does_not_come(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranks_in_process, "TIMEOUT", 0.3)
    call = load_in_process(IN_A_BRANCH)
    loaded = call._loaded[1]
    call._loaded[1] = lambda *arguments: (time.sleep(1), loaded(*arguments))[1]  # type: ignore[index]
    with pytest.raises(UsageError, match=r"the ranks \[1\] did not come to a collective in 0.3 s"):
        call([(YES, X), (YES, X)])


def test_an_unknown_reduction():
    body = f"%r = {REDUCED.replace('REDUCTION', 'divide')}\nreturn %r : tensor<3xf32>"
    with pytest.raises(UsageError, match="a reduction of ranks by stablehlo.divide is not one of stablehlo.add"):
        load_in_process(module(body))
