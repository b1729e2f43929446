# RUN: %PYTHON %s | FileCheck %s
"""No symbolic shape is emitted by default."""

import torch
from torch.export import Dim, export

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def forward(self, x):
        return x.relu()


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(6, 4),), dynamic_shapes=({0: Dim("batch")},)))
print(importer.module)

# CHECK: torch.aten.relu %arg0 : !torch.vtensor<[?,4],f32> -> !torch.vtensor<[?,4],f32>
# CHECK-NOT: torch.symbolic_int
# CHECK-NOT: torch.bind_symbolic_shape
