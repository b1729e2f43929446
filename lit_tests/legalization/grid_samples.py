# RUN: %PYTHON %s | FileCheck %s
"""Positions and weights of a grid are computed once for all channels, and the elements are read as rows of channels."""

import torch
import torch.nn.functional as F

from fx_importer import export_and_import


class Sample(torch.nn.Module):
    def forward(self, x, grid):
        return F.grid_sample(x, grid, align_corners=False)


print(export_and_import(Sample(), torch.ones(1, 3, 8, 8), torch.ones(1, 5, 5, 2), output_type="tosa"))

# CHECK-LABEL: func.func @main
# CHECK-NOT: tosa.tile
# CHECK-NOT: xi64
# CHECK: tosa.clamp {{.*}} : (tensor<1x5x5xf32>)
# CHECK-NOT: tosa.ceil
# CHECK: tosa.gather {{.*}} : (tensor<1x64x3xf32>, tensor<1x25xi32>)
# CHECK-COUNT-3: tosa.gather
# CHECK-NOT: tosa.gather
# CHECK: return
