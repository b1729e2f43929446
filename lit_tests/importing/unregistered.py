# RUN: %PYTHON %s | FileCheck %s
"""An operator that is not registered in the torch dialect becomes torch.operator, lists and None included."""

import torch
from torch.export import export

from fx_importer import FxImporter


@torch.library.custom_op("lit::twice", mutates_args=())
def twice(x: torch.Tensor, extra: list[torch.Tensor], scale: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, x.sum()


@twice.register_fake
def _(x, extra, scale=None):
    return torch.empty_like(x), x.new_empty(())


class Model(torch.nn.Module):
    def forward(self, x):
        a, b = torch.ops.lit.twice(x, [x, x])
        return a + b


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(2, 3),)))
print(importer.module)

# CHECK: %[[LIST:.*]] = torch.prim.ListConstruct %arg0, %arg0 : {{.*}} -> !torch.list<vtensor<[2,3],f32>>
# CHECK: %[[NONE:.*]] = torch.constant.none
# CHECK: %[[R:.*]]:2 = torch.operator "torch.lit.twice"(%arg0, %[[LIST]], %[[NONE]]) : (!torch.vtensor<[2,3],f32>, !torch.list<vtensor<[2,3],f32>>, !torch.none) -> (!torch.vtensor<[2,3],f32>, !torch.vtensor<[],f32>)
# CHECK: torch.aten.add.Tensor %[[R]]#0, %[[R]]#1
