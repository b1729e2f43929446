# RUN: %PYTHON %s | FileCheck %s
"""Group norms and resizing in TOSA have channels last, as convolutions; rows are read at constant places."""

import torch
from torch import nn

from fx_importer import export_and_import

model = nn.Sequential(
    nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(4, 3, 3)
)
print(export_and_import(model.eval(), torch.ones(1, 3, 6, 6), output_type="tosa"))

# CHECK: tosa.transpose
# CHECK: tosa.conv2d
# CHECK-NOT: tosa.transpose
# CHECK-NOT: tosa.tile
# CHECK-COUNT-4: tosa.gather {{.*}} : (tensor<1x16x4xf32>, tensor<1x64xi32>) -> tensor<1x64x4xf32>
# CHECK: tosa.conv2d
# CHECK-NEXT: tosa.transpose
# CHECK-NOT: tosa.transpose
