"""Bisection by pass names the pass after which numbers differ: an FX pass, one of the user, and one of an engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fx_importer import lower
from fx_importer.compiler import driver
from fx_importer.engines.jit import jit_backend
from fx_importer.fx_graph.emission import emit
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_passes.fx_pass import node_pass
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import RewriteStep, operations
from fx_importer.pipelines import Pipeline
from fx_importer.pipelines.llvm import FUSE

X = torch.arange(1.0, 7.0).reshape(2, 3)


class Scaled(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x + 1) * x


def subtract(module: ir.Operation) -> None:
    """Replace additions by subtractions."""
    for op in list(operations(module)):
        if op.name == "arith.addf":
            with ir.InsertionPoint(op), op.location:
                other = ir.Operation.create("arith.subf", [op.results[0].type], list(op.operands))
            op.results[0].replace_all_uses_with(other.results[0])
            op.erase()


def test_right_program_has_no_wrong_pass():
    verdict = lower(Scaled(), X, output_type="linalg").verify(backends=["jit"], bisect=True)
    assert verdict
    assert verdict.wrong_passes == ()


def test_fx_pass(monkeypatch: pytest.MonkeyPatch):
    wrong = node_pass("add-to-sub", {aten.add.Tensor: lambda node: emit(node, aten.sub.Tensor, *node.args)})
    monkeypatch.setattr(driver, "CANONICAL", (*driver.CANONICAL[:4], wrong, *driver.CANONICAL[4:]))
    verdict = lower(Scaled(), X, output_type="linalg").verify(backends=["jit"], isolate=False, bisect=True)
    assert not verdict
    (found,) = verdict.wrong_passes
    assert (found.stage, found.name) == ("fx_passes", "add-to-sub")
    assert "numbers differ after pass 'add-to-sub' in stage 'fx_passes'" in str(verdict)


@pytest.mark.slow_rows("^linalg$")
@pytest.mark.parametrize("stage", ["linalg", "loops"])
def test_pass_of_a_user(stage: str):
    lowered = lower(Scaled(), X, output_type="linalg", pipeline=lambda pipeline: pipeline.after(stage, subtract))
    (found,) = lowered.verify(backends=["jit"], isolate=False, bisect=True).wrong_passes
    assert (found.stage, found.name) == ("subtract", "subtract")


def test_pass_of_an_engine(monkeypatch: pytest.MonkeyPatch):
    make = jit_backend.pipeline
    wrong = replace(FUSE, passes=(*FUSE.passes, RewriteStep("wrong", subtract)))

    def pipeline(*arguments: Any) -> Pipeline:
        return make(*arguments).replacing(FUSE.name, wrong)

    monkeypatch.setattr(jit_backend, "pipeline", pipeline)
    lowered = lower(Scaled(), X, output_type="linalg")
    (found,) = lowered.verify(backends=["jit"], isolate=False, bisect=True).wrong_passes
    assert (found.stage, found.name) == (FUSE.name, "wrong")
