# RUN: %PYTHON %s linalg-on-tensors | FileCheck %s --check-prefix=LINALG
# RUN: %PYTHON %s stablehlo | FileCheck %s --check-prefix=STABLEHLO
# RUN: %PYTHON %s tosa | FileCheck %s --check-prefix=TOSA
"""A pool whose last windows are beyond the image is one operation, and divides by constants."""

import sys

import torch
import torch.nn.functional as F

from fx_importer import export_and_import


class Maximum(torch.nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, 3, 2, padding=1, ceil_mode=True)


class Mean(torch.nn.Module):
    def forward(self, x):
        return F.avg_pool2d(x, 3, 2, padding=1, ceil_mode=True, count_include_pad=False)


for model in (Maximum(), Mean()):
    print(export_and_import(model, torch.ones(1, 2, 8, 9), output_type=sys.argv[1]))

# LINALG-LABEL: func.func @main
# LINALG: linalg.pooling_nchw_max
# LINALG-NOT: linalg.generic
# LINALG-LABEL: func.func @main
# LINALG: arith.constant {{.*}} : tensor<5x5xf32>
# LINALG: linalg.pooling_nchw_sum
# LINALG: arith.divf
# LINALG-NOT: linalg.generic
# LINALG: return

# STABLEHLO-LABEL: func.func @main
# STABLEHLO: "stablehlo.reduce_window"
# STABLEHLO-NOT: stablehlo.gather
# STABLEHLO-LABEL: func.func @main
# STABLEHLO: "stablehlo.reduce_window"
# STABLEHLO-NOT: "stablehlo.reduce_window"
# STABLEHLO: return

# TOSA-LABEL: func.func @main
# TOSA-NOT: tosa.gather
# TOSA: tosa.max_pool2d %{{.*}}pad = array<i64: 1, 2, 1, 1>
# TOSA-LABEL: func.func @main
# TOSA-NOT: tosa.gather
# TOSA: tosa.avg_pool2d
# TOSA-NEXT: tosa.transpose
# TOSA-NEXT: return
