# RUN: %PYTHON %s | FileCheck %s
"""run_const_graph is inlined. torch.export does not produce it, so this graph is built by hand."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fx_importer import stateless_fx_import

constants = make_fx(lambda weight: (weight.sin(), weight.cos()))(torch.ones(3))


def model(x, weight):
    sine, cosine = torch.ops.higher_order.run_const_graph(constants, (weight,))
    return x * sine + cosine


print(stateless_fx_import(make_fx(model)(torch.ones(3), torch.ones(3))))

# CHECK: %[[SIN:.*]] = torch.aten.sin %arg1
# CHECK: %[[COS:.*]] = torch.aten.cos %arg1
# CHECK: %[[MUL:.*]] = torch.aten.mul.Tensor %arg0, %[[SIN]]
# CHECK: torch.aten.add.Tensor %[[MUL]], %[[COS]]
