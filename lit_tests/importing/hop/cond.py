# RUN: %PYTHON %s | FileCheck %s
"""torch.cond becomes torch.prim.If: nested, and closing over a parameter."""

import torch
from torch.export import export

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(3))

    def forward(self, x):
        def inner(t):
            return torch.cond(t.max() > 0, lambda u: u * 3, lambda u: u - self.weight, (t,))

        return torch.cond(x.sum() > 0, lambda t: t + self.weight, inner, (x,))


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(3),)))
print(importer.module)

# CHECK: %[[W:.*]] = torch.vtensor.literal(dense_resource<weight>
# CHECK: %[[P:.*]] = torch.aten.Bool.Tensor %{{.*}} : !torch.vtensor<[],i1> -> !torch.bool
# CHECK: %[[R:.*]] = torch.prim.If %[[P]] -> (!torch.vtensor<[3],f32>)
# CHECK: torch.aten.add.Tensor %arg0, %[[W]]
# CHECK: torch.prim.If.yield
# CHECK: } else {
# CHECK: torch.prim.If
# CHECK: torch.aten.mul.Scalar %arg0
# CHECK: } else {
# CHECK: torch.aten.sub.Tensor %arg0, %[[W]]
# CHECK: return %[[R]]
