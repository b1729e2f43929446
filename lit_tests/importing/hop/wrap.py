# RUN: %PYTHON %s | FileCheck %s
"""Regions without gradients or under autocast are inlined."""

import torch
from torch.export import export

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def forward(self, x):
        with torch.no_grad():
            y = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = x @ x
        return y, z


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(2, 2),)))
print(importer.module)

# CHECK: torch.aten.mul.Scalar %arg0
# CHECK: torch.aten.matmul {{.*}} -> !torch.vtensor<[2,2],bf16>
# CHECK-NOT: higher_order
