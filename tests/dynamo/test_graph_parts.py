"""Graphs of `torch.compile` in parts: on devices, with copies between them, and around launches of Triton kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fx_importer.dynamo.backend_options import GraphOptions
from fx_importer.engines.xla import xla_function
from fx_importer.engines.xla.torch_arrays import TorchReader
from fx_importer.fx_graph.triton_runtime import interpreted_kernels, traceable_kernels
from tests.engines.test_engine_table import needs_xla
from tests.running import run_script


@needs_xla
def test_graphs_run_on_the_engine_of_their_device(tmp_path: Path):
    ran = run_script(Path(__file__).with_name("device_engine_program.py"), tmp_path, {})
    assert ran.returncode == 0, ran.stderr


@needs_xla
def test_training_step_reads_weights_in_place(monkeypatch: pytest.MonkeyPatch):
    """XLA's host, by the code for GPUs: weights, inputs and saved values are not copied."""
    in_place: list[bool] = []

    class Counting(TorchReader):
        def __call__(self, tensor: torch.Tensor, ordered: bool) -> Any:
            array = super().__call__(tensor, ordered)
            in_place.append(array.unsafe_buffer_pointer() == tensor.data_ptr())
            return array

    monkeypatch.setattr(xla_function, "TorchReader", Counting)
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    x = torch.randn(8, 64)
    torch.compile(model, backend="fx_importer", options={"engine": "xla"})(x).square().sum().backward()
    ours = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    torch.testing.assert_close(ours, [parameter.grad for parameter in model.parameters()])
    assert len(in_place) > 8
    assert all(in_place)


@needs_xla
@pytest.mark.filterwarnings("error::fx_importer.errors.EagerFallbackWarning")
@pytest.mark.parametrize("dynamic", [False, True])
def test_triton_launches_its_kernels_between_parts(dynamic: bool, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("triton", reason="the extra 'triton' is not installed")
    from torch._higher_order_ops import triton_kernel_wrap

    from tests.triton_kernels import scale_kernel, vector_add

    def function(x, y):
        scale_kernel[(5,)](y, y.numel(), 3.0, block=64)  # pyright: ignore[reportArgumentType]
        return vector_add(vector_add(x.sin(), y), x).cos()

    copies: list[type] = []
    clone: Any = getattr(triton_kernel_wrap, name := "clone_preserve_strides")
    monkeypatch.setattr(triton_kernel_wrap, name, lambda x: copies.append(type(x)) or clone(x))
    x, y = torch.randn(300), torch.randn(300)
    with interpreted_kernels(), traceable_kernels():
        ours, theirs = y.clone(), y.clone()
        expected = function(x, theirs)
        compiled = torch.compile(function, backend="fx_importer", dynamic=dynamic, options={"engine": "xla"})
        torch.testing.assert_close(compiled(x, ours), expected)
        torch.testing.assert_close(ours, theirs)
        assert copies.count(torch.Tensor) == 1  # of the input that a kernel writes
        refusing: Any = {"engine": "xla", "unsupported": "error"}
        with pytest.raises(Exception, match="launches Triton kernels, which the engine 'xla' does not"):
            torch.compile(function, backend="fx_importer", options=refusing)(x, y)


def test_graphs_are_compiled_anew_for_another_precision():
    """XLA computes products on GPUs as precisely as PyTorch's settings ask for when a graph is compiled."""
    matmuls: Any = torch.backends.cuda.matmul
    before, key = matmuls.fp32_precision, GraphOptions.of({}).key
    try:
        matmuls.fp32_precision = "tf32"
        assert GraphOptions.of({}).key != key
    finally:
        matmuls.fp32_precision = before
