# RUN: %PYTHON %s | FileCheck %s
"""invoke_subgraph is inlined in any context, with and without canonicalization."""

import torch
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph
from torch.export import export

from fx_importer import FxImporter, export_and_import


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(3))
        self.region = torch.fx.symbolic_trace(lambda x, weight: (x.sin() * weight, x.cos()))

    def forward(self, x):
        first, _ = invoke_subgraph(self.region, "region", x, self.weight)
        second, cosine = invoke_subgraph(self.region, "region", first, self.weight)
        return second + cosine


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(3),)))
print(importer.module)
print(export_and_import(Model(), torch.ones(3)))

# CHECK-LABEL: @main
# CHECK: %[[SIN:.*]] = torch.aten.sin %arg0
# CHECK: %[[FIRST:.*]] = torch.aten.mul.Tensor %[[SIN]]
# CHECK: torch.aten.sin %[[FIRST]]
# CHECK: torch.aten.cos %[[FIRST]]

# CHECK-LABEL: @main
# CHECK: %[[SIN:.*]] = torch.aten.sin %arg0
# CHECK: %[[FIRST:.*]] = torch.aten.mul.Tensor %[[SIN]]
# CHECK-NOT: torch.aten.cos %arg0
# CHECK: torch.aten.sin %[[FIRST]]
# CHECK: torch.aten.cos %[[FIRST]]
