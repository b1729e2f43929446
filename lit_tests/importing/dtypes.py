# RUN: %PYTHON %s | FileCheck %s
"""Every dtype that the torch dialect can spell, as an argument."""

import torch
from torch.export import export

from fx_importer import FxImporter
from fx_importer.importing.types import ELEMENT_TYPES


class Model(torch.nn.Module):
    def forward(self, *tensors):
        return tensors


importer = FxImporter()
importer.import_frozen_program(export(Model(), tuple(torch.zeros(1).to(dtype) for dtype in ELEMENT_TYPES)))
print(importer.module)

# CHECK: !torch.vtensor<[1],f64>, %arg1: !torch.vtensor<[1],f32>, %arg2: !torch.vtensor<[1],f16>, %arg3: !torch.vtensor<[1],bf16>
# CHECK-SAME: !torch.vtensor<[1],f8E5M2>, %arg5: !torch.vtensor<[1],f8E4M3FN>, %arg6: !torch.vtensor<[1],f8E5M2FNUZ>, %arg7: !torch.vtensor<[1],f8E4M3FNUZ>, %arg8: !torch.vtensor<[1],f8E8M0FNU>
# CHECK-SAME: !torch.vtensor<[1],si64>, %arg10: !torch.vtensor<[1],si32>, %arg11: !torch.vtensor<[1],si16>, %arg12: !torch.vtensor<[1],si8>
# CHECK-SAME: !torch.vtensor<[1],ui64>, %arg14: !torch.vtensor<[1],ui32>, %arg15: !torch.vtensor<[1],ui16>, %arg16: !torch.vtensor<[1],ui8>
# CHECK-SAME: !torch.vtensor<[1],i1>, %arg18: !torch.vtensor<[1],complex<f16>>, %arg19: !torch.vtensor<[1],complex<f32>>, %arg20: !torch.vtensor<[1],complex<f64>>
