# RUN: %PYTHON %s | FileCheck %s
"""A linear layer is one product and one sum, without a transpose of its weight; scalars have the type of their use."""

import torch

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 5)
        self.norm = torch.nn.LayerNorm(5)

    def forward(self, x):
        return self.norm(self.linear(x)) * 0.5


for output_type in ("stablehlo", "linalg"):
    print(export_and_import(Model(), torch.randn(2, 3, 4), output_type=output_type))

# CHECK-LABEL: func.func @main
# CHECK-NOT: arith.constant
# CHECK-NOT: f64
# CHECK: stablehlo.dot_general {{.*}}, contracting_dims = [2] x [1] {{.*}}: (tensor<2x3x4xf32>, tensor<5x4xf32>) -> tensor<2x3x5xf32>
# CHECK-NEXT: stablehlo.broadcast_in_dim
# CHECK-NEXT: stablehlo.add
# CHECK-NOT: f64
# CHECK: return

# CHECK-LABEL: func.func @main
# CHECK-NOT: f64
# CHECK-NOT: linalg.transpose
# CHECK: linalg.matmul indexing_maps = [{{.*}}] {{.*}}tensor<6x4xf32>, tensor<5x4xf32>
# CHECK-NOT: batch_matmul
# CHECK-NOT: f64
# CHECK: return
