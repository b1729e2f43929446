# RUN: %PYTHON %s | FileCheck %s
"""A Triton kernel is an opaque operator. The table of kernels has a stub: triton need not be installed."""

import operator

import torch
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from torch._subclasses.fake_tensor import FakeTensorMode

from fx_importer import stateless_fx_import


class JITFunction:
    def __init__(self, fn):
        self.fn = fn


def add_kernel(left, right, out, count, block): ...


graph = torch.fx.Graph()
left, right = graph.placeholder("left"), graph.placeholder("right")
call = graph.call_function(
    torch.ops.higher_order.triton_kernel_wrapper_functional,
    kwargs={
        "kernel_idx": kernel_side_table.add_kernel(JITFunction(add_kernel)),
        "constant_args_idx": kernel_side_table.add_constant_args({"block": 16}),
        "grid": [(4,)],
        "tma_descriptor_metadata": {},
        "kwargs": {"left": left, "right": right, "out": left, "count": 64},
        "tensors_to_clone": ["out"],
    },
)
out = graph.call_function(torch.ops.aten.neg.default, (graph.call_function(operator.getitem, (call, "out")),))
graph.output((out,))
with FakeTensorMode():
    example = torch.empty(64)
for node in graph.nodes:
    node.meta["val"] = {"out": example} if node is call else example
print(stateless_fx_import(torch.fx.GraphModule(torch.nn.Module(), graph)))

# CHECK: %[[GRID:.*]] = torch.prim.ListConstruct %int4, %int1, %int1
# CHECK: %[[OUT:.*]] = torch.operator "torch.triton.add_kernel"(%[[GRID]], %arg0, %arg1, %arg0, %int64)
# CHECK-SAME: triton.arguments = ["left", "right", "out", "count"]
# CHECK-SAME: triton.constants = ["block=16"]
# CHECK-SAME: triton.results = ["out"]
# CHECK: torch.aten.neg %[[OUT]]
