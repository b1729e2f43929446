# RUN: %PYTHON %s | FileCheck %s
"""while_loop becomes a torch.prim.Loop with its condition computed before it, and at the end of each iteration."""

import torch
from torch._higher_order_ops.while_loop import while_loop
from torch.export import export

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def forward(self, n, x):
        return while_loop(lambda i, x: i > 0, lambda i, x: (i - 1, x * 2), (n, x))


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.tensor(3), torch.ones(2))))
print(importer.module)

# CHECK: %[[BOUND:.*]] = torch.constant.int 9223372036854775807
# CHECK: torch.aten.gt.Scalar %arg0
# CHECK: %[[FIRST:.*]] = torch.aten.Bool.Tensor
# CHECK: %[[R:.*]]:2 = torch.prim.Loop %[[BOUND]], %[[FIRST]], init(%arg0, %arg1) {
# CHECK: ^bb0(%{{.*}}: !torch.int, %[[I:.*]]: !torch.vtensor<[],si64>, %[[X:.*]]: !torch.vtensor<[2],f32>):
# CHECK: %[[NEXT:.*]] = torch.aten.sub.Scalar %[[I]]
# CHECK: %[[Y:.*]] = torch.aten.mul.Scalar %[[X]]
# CHECK: torch.aten.gt.Scalar %[[NEXT]]
# CHECK: %[[AGAIN:.*]] = torch.aten.Bool.Tensor
# CHECK: torch.prim.Loop.condition %[[AGAIN]], iter(%[[NEXT]], %[[Y]]
# CHECK: return %[[R]]#0, %[[R]]#1
