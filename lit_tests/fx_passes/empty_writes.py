# RUN: %PYTHON %s | FileCheck %s
"""Writes of no elements are left out: iree-compile divides by their number."""

import torch

from fx_importer import export_and_import


class Writes(torch.nn.Module):
    def forward(self, x, nowhere, none):
        y = x + 1
        y[:, 5:9:3] = x[:, 5:9:3]
        y[:, nowhere] = none
        return y.index_add(1, nowhere, none).scatter(1, nowhere[None].expand(3, 0), 2.0)


inputs = torch.ones(3, 5), torch.ones(0, dtype=torch.int64), torch.ones(3, 0)
print(export_and_import(Writes(), *inputs, output_type="stablehlo"))

# CHECK-LABEL: func.func @main
# CHECK: %[[SUM:.*]] = stablehlo.add
# CHECK-NOT: stablehlo.scatter
# CHECK: return %[[SUM]]
