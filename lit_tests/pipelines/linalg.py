# RUN: %PYTHON %s | FileCheck %s
"""linalg on tensors: arithmetic is linalg, scans and sorts are loops, random numbers use a global seed."""

import torch

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, x):
        return self.linear(x).relu(), x.cumsum(1), torch.rand(2)


dynamic = {"x": {0: torch.export.Dim("batch", min=2, max=64)}}
print(export_and_import(Model(), torch.ones(2, 3), output_type="linalg-on-tensors", dynamic_shapes=dynamic))

# CHECK: ml_program.global private mutable @global_seed
# CHECK: func.func @main(%[[X:.*]]: tensor<?x3xf32>{{[^:>]*}}) -> (tensor<?x4xf32>{{[^:>]*}}, tensor<?x3xf32>{{[^:>]*}}, tensor<2xf32>{{[^:>]*}})
# CHECK-NOT: torch.
# CHECK: tensor.dim %[[X]]
# CHECK: linalg.matmul
# CHECK: linalg.generic
# CHECK: arith.maximumf
# CHECK: scf.for
# CHECK: ml_program.global_load @global_seed
# CHECK-NOT: torch
