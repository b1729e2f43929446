# RUN: %PYTHON %s | FileCheck %s
"""linalg convolves images of many groups in one operation, and the planes of volumes where they have many groups."""

import torch
from torch import nn

from fx_importer import export_and_import


def lowered(model: nn.Module, *sizes: int):
    return export_and_import(model.eval(), torch.ones(sizes), output_type="linalg")


print(lowered(nn.Conv2d(64, 64, 3, groups=32), 1, 64, 8, 8))
print("volumes", lowered(nn.Conv3d(32, 32, 3, groups=32), 1, 32, 8, 8, 8))

# CHECK: linalg.conv_2d_ngchw_gfchw
# CHECK-NOT: linalg.conv
# CHECK: volumes
# CHECK-COUNT-3: linalg.depthwise_conv_2d_nchw_chw
# CHECK-NOT: linalg.conv
# CHECK-NOT: linalg.depthwise
