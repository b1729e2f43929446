# RUN: %PYTHON %s | FileCheck %s
"""out_dtype converts the operands to the dtype of the computation."""

import torch
from torch._higher_order_ops.out_dtype import out_dtype

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def forward(self, x, y):
        return out_dtype(torch.ops.aten.mm.default, torch.int32, x, y)


x = torch.ones(2, 3, dtype=torch.int8)
print(export_and_import(Model(), x, x.T))

# CHECK: %[[X:.*]] = torch.aten.to.dtype %arg0, {{.*}} -> !torch.vtensor<[2,3],si32>
# CHECK: %[[Y:.*]] = torch.aten.to.dtype %arg1, {{.*}} -> !torch.vtensor<[3,2],si32>
# CHECK: torch.aten.mm %[[X]], %[[Y]] : {{.*}} -> !torch.vtensor<[2,2],si32>
