# RUN: %PYTHON %s | FileCheck %s
"""Reshapes of an axis of dynamic size compute no size by division, and compare no sizes that are the same."""

import torch
from torch.export import Dim

from fx_importer import export_and_import


class Heads(torch.nn.Module):
    def forward(self, x):
        heads = x.reshape(x.shape[0] * 2, 4, 4)
        return (heads @ heads).reshape(x.shape).reshape(x.shape[0], 2, 16)


batch = Dim("batch", max=64)
print(export_and_import(Heads(), torch.ones(3, 8, 4), output_type="linalg-on-tensors", dynamic_shapes=({0: batch},)))

# CHECK-LABEL: func.func @main
# CHECK-NOT: arith.divsi
# CHECK-NOT: cf.assert
# CHECK: return
