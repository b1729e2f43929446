# RUN: %PYTHON %s | FileCheck %s
"""TOSA: convolutions are NHWC, and the transposes between two of them cancel."""

import torch

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3)
        self.second = torch.nn.Conv2d(4, 4, 3)

    def forward(self, x):
        return self.second(self.first(x).relu())


module = export_and_import(Model(), torch.ones(1, 3, 8, 8), output_type="tosa")
print(module.operation.get_asm(large_elements_limit=10))

# CHECK: func.func @main(%[[X:.*]]: tensor<1x3x8x8xf32>{{[^:>]*}}) -> tensor<1x4x4x4xf32>
# CHECK: %[[NHWC:.*]] = tosa.transpose %[[X]] {perms = array<i32: 0, 2, 3, 1>}
# CHECK: %[[FIRST:.*]] = tosa.conv2d %[[NHWC]]
# CHECK-NOT: tosa.transpose
# CHECK: %[[RELU:.*]] = tosa.clamp %[[FIRST]]
# CHECK-NOT: tosa.transpose
# CHECK: %[[SECOND:.*]] = tosa.conv2d %[[RELU]]
# CHECK: tosa.transpose %[[SECOND]] {perms = array<i32: 0, 3, 1, 2>}
# CHECK-NOT: torch
