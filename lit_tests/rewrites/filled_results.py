# RUN: %PYTHON %s | FileCheck %s
"""The sum of a convolution whose bias is zero begins in a fill, and not in a constant of the size of the result."""

import torch

from fx_importer import export_and_import

model = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 1, bias=False), torch.nn.BatchNorm2d(16)).eval()
print(export_and_import(model, torch.ones(1, 8, 7, 7), output_type="linalg-on-tensors"))

# CHECK-LABEL: func.func @main
# CHECK-NOT: dense<0.0
# CHECK: %[[EMPTY:.*]] = tensor.empty() : tensor<1x16x7x7xf32>
# CHECK: %[[ZEROS:.*]] = linalg.fill ins(%{{.*}} : f32) outs(%[[EMPTY]] : tensor<1x16x7x7xf32>)
# CHECK: linalg.conv_2d_nchw_fchw {{.*}} outs(%[[ZEROS]] : tensor<1x16x7x7xf32>)
