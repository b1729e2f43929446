# RUN: %PYTHON %s | FileCheck %s
"""StableHLO: the client dialect is gone, and shapes that can be known are static."""

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
