# RUN: %PYTHON %s | FileCheck %s
"""Overloads by their schema: defaults are filled in, scalars select the Scalar overload, constants are shared."""

import torch
from torch.export import export

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.add(x, y), x * 2, x + y * 0.5, torch.clamp(x, min=0), x.to(torch.bfloat16)


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(2, 3), torch.ones(3))))
print(importer.module)

# CHECK-LABEL: func.func @main(%arg0: !torch.vtensor<[2,3],f32>{{[^:>]*}}, %arg1: !torch.vtensor<[3],f32>{{[^:>]*}})
# CHECK: %[[ONE:.*]] = torch.constant.int 1
# CHECK-NEXT: torch.aten.add.Tensor %arg0, %arg1, %[[ONE]] : {{.*}} -> !torch.vtensor<[2,3],f32>
# CHECK: %[[TWO:.*]] = torch.constant.int 2
# CHECK-NEXT: torch.aten.mul.Scalar %arg0, %[[TWO]]
# CHECK: %[[HALF:.*]] = torch.constant.float 5.000000e-01
# CHECK-NEXT: %[[SCALED:.*]] = torch.aten.mul.Scalar %arg1, %[[HALF]]
# CHECK-NOT: torch.constant.int 1
# CHECK: torch.aten.add.Tensor %arg0, %[[SCALED]], %[[ONE]]
# CHECK: %[[ZERO:.*]] = torch.constant.int 0
# CHECK: %[[NONE:.*]] = torch.constant.none
# CHECK: torch.aten.clamp %arg0, %[[ZERO]], %[[NONE]]
# CHECK: torch.constant.int 15
# CHECK: -> !torch.vtensor<[2,3],bf16>
