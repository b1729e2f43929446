# RUN: %PYTHON %s | FileCheck %s
"""Regions under no_grad are inlined, also without decompositions."""

import torch

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def forward(self, x):
        y = x.sin()
        with torch.no_grad():
            z = y.cos()
        return z + y


print(export_and_import(Model(), torch.randn(3), decomposition_table={}))

# CHECK-LABEL: func.func @main
# CHECK: %[[SINE:.*]] = torch.aten.sin %arg0
# CHECK: %[[COSINE:.*]] = torch.aten.cos %[[SINE]]
# CHECK: torch.aten.add.Tensor %[[COSINE]], %[[SINE]]
# CHECK-NOT: func.func
