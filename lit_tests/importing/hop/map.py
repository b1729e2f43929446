# RUN: %PYTHON %s | FileCheck %s
"""map becomes a counted torch.prim.Loop that carries the stacked results; a captured parameter stays outside."""

import torch
from torch._higher_order_ops.map import map as torch_map
from torch.export import export

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(2, 1))

    def forward(self, x, y):
        return torch_map(lambda row, y: (row * self.weight, row.sum() + y), x, y)


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(3, 4), torch.tensor(1.0))))
print(importer.module)

# CHECK: %[[W:.*]] = torch.vtensor.literal(dense_resource<weight>
# CHECK: torch.aten.zeros {{.*}} -> !torch.vtensor<[3,2,4],f32>
# CHECK: torch.aten.zeros {{.*}} -> !torch.vtensor<[3],f32>
# CHECK: %[[R:.*]]:2 = torch.prim.Loop %int3{{.*}}, %true, init(
# CHECK: %[[ROW:.*]] = torch.aten.select.int %arg0
# CHECK: torch.aten.mul.Tensor %[[ROW]], %[[W]]
# CHECK: torch.aten.slice_scatter {{.*}} -> !torch.vtensor<[3,2,4],f32>
# CHECK: torch.aten.slice_scatter {{.*}} -> !torch.vtensor<[3],f32>
# CHECK: torch.prim.Loop.condition %true
# CHECK: return %[[R]]#0, %[[R]]#1
