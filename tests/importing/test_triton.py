"""Triton kernels, with stubs for the triton package."""

import importlib.util
import operator

import torch
from torch._higher_order_ops import triton_kernel_wrap
from torch._subclasses.fake_tensor import FakeTensorMode

from fx_importer import stateless_fx_import


def kernel(x):
    """Stub of a function under ``triton.jit``."""


def test_the_kernels_ir_is_an_attribute_where_triton_is_installed(monkeypatch):
    seen = []

    def generate_ttir(kernel, arguments, descriptors):
        seen.append((kernel, arguments["block"], type(arguments["x"]).__name__, descriptors))
        return "tt.func @kernel", ["x"]

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "triton")
    monkeypatch.setattr(triton_kernel_wrap, "generate_ttir", generate_ttir)
    table = triton_kernel_wrap.kernel_side_table
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    call = graph.call_function(
        torch.ops.higher_order.triton_kernel_wrapper_functional,
        kwargs={
            "kernel_idx": table.add_kernel(kernel),
            "constant_args_idx": table.add_constant_args({"block": 16}),
            "grid": [(2, 3)],
            "tma_descriptor_metadata": {},
            "kwargs": {"x": x},
            "tensors_to_clone": ["x"],
        },
    )
    graph.output(graph.call_function(operator.getitem, (call, "x")))
    with FakeTensorMode():
        example = torch.empty(64)
    for node in graph.nodes:
        node.meta["val"] = {"x": example} if node is call else example
    module = stateless_fx_import(torch.fx.GraphModule(torch.nn.Module(), graph))
    assert 'triton.ir = "tt.func @kernel"' in str(module)
    assert seen == [(kernel, 16, "FakeTensor", {})]
