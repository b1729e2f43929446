# RUN: %PYTHON %s | FileCheck %s
"""hints_wrapper is inlined, with and without canonicalization."""

import torch
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch.export import export

from fx_importer import FxImporter, export_and_import


class Model(torch.nn.Module):
    def forward(self, x):
        return hints_wrapper(lambda x: x.sin() + 1, (x,), {}, hints={"where": "there"})


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(3),)))
print(importer.module)
print(export_and_import(Model(), torch.ones(3)))

# CHECK-LABEL: @main
# CHECK-NEXT: torch.aten.sin %arg0
# CHECK: torch.aten.add.Scalar
# CHECK-LABEL: @main
# CHECK-NEXT: torch.aten.sin %arg0
# CHECK: torch.aten.add.Scalar
