# RUN: %PYTHON %s | FileCheck %s
"""Inputs that are unused, None or scalars; outputs that are None, scalars, strings, nested or duplicated."""

import torch
from torch.export import export

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def forward(self, x, unused, nothing=None, scale=2, name="n"):
        y = x * scale
        return y, None, {"again": y, "number": 3, "half": 0.5, "flag": True, "text": name}, [x, (unused,)]


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(2), torch.ones(3, dtype=torch.int32), None, 5, "a")))
print(importer.module)

# CHECK: func.func @main(%arg0: !torch.vtensor<[2],f32>{{[^:>]*}}, %arg1: !torch.vtensor<[3],si32>{{[^:>]*}}, %arg2: !torch.int{{[^:>]*}}) -> (!torch.vtensor<[2],f32>{{[^:>]*}}, !torch.vtensor<[2],f32>{{[^:>]*}}, !torch.int{{[^:>]*}}, !torch.float{{[^:>]*}}, !torch.bool{{[^:>]*}}, !torch.vtensor<[2],f32>{{[^:>]*}}, !torch.vtensor<[3],si32>{{[^:>]*}})
# CHECK: %[[Y:.*]] = torch.aten.mul.Scalar %arg0
# CHECK: return %[[Y]], %[[Y]], %int3, %{{.*}}, %true, %arg0, %arg1
