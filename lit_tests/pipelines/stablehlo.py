# RUN: %PYTHON %s | FileCheck %s
"""StableHLO: CHLO is legalized, and inferable shapes are static."""

import torch

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.erf(x) @ torch.ones(3, 4), torch.arange(6).view(2, 3) + x


print(export_and_import(Model(), torch.ones(2, 3), output_type="stablehlo"))

# CHECK: func.func @main(%[[X:.*]]: tensor<2x3xf32>{{[^:>]*}}) -> (tensor<2x4xf32>{{[^:>]*}}, tensor<2x3xf32>{{[^:>]*}})
# CHECK-NOT: chlo.
# CHECK: stablehlo.dot_general
# CHECK: stablehlo.add
# CHECK-NOT: torch


def scaled(x, n: int):
    rows = x.shape[0]
    return (x + torch.arange(rows)[:, None]).view(rows * 2, -1) * n, rows + n


shapes = ({0: torch.export.Dim.DYNAMIC}, torch.export.Dim.DYNAMIC)
print(export_and_import(scaled, torch.ones(3, 4), 5, dynamic_shapes=shapes, output_type="stablehlo"))

# A size is read once, and scalars are tensors of rank 0.
# CHECK: func.func @main(%[[X:.*]]: tensor<?x4xf32> {{.*}}, %[[N:.*]]: tensor<i64> {{.*}}) -> (tensor<?x2xf32> {{.*}}, tensor<i64>
# CHECK: stablehlo.get_dimension_size %[[X]], dim = 0
# CHECK-NOT: stablehlo.get_dimension_size
# CHECK: stablehlo.dynamic_iota
# CHECK: stablehlo.dynamic_reshape
# CHECK-NOT: arith.
# CHECK-NOT: tensor.
# CHECK-NOT: shape.
# CHECK: return
