# RUN: %PYTHON %s | FileCheck %s
"""Operators that return their argument are removed; those that only look like it are kept."""

import torch

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def forward(self, x):
        y = x.clone().expand(3, 4).view(3, 4)[:].to(torch.float32) * 1
        return y.relu(), torch.nn.functional.pad(y, (1, -1))


# CHECK-LABEL: func.func @main
# CHECK-NOT: aten.{{clone|expand|view|slice|_to_copy|mul}}
# CHECK: torch.aten.relu %arg0
# CHECK-NOT: aten.{{clone|expand|view|slice|_to_copy|mul}}
# CHECK: torch.aten.constant_pad_nd %arg0
print(export_and_import(Model(), torch.randn(3, 4)))
