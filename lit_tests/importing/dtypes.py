# RUN: %PYTHON %s | FileCheck %s
"""Every dtype that the torch dialect has, as an argument."""

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

# CHECK: !torch.vtensor<[1],f64>{{.*}}: !torch.vtensor<[1],f32>{{.*}}: !torch.vtensor<[1],f16>{{.*}}: !torch.vtensor<[1],bf16>
# CHECK-SAME: !torch.vtensor<[1],f8E5M2>{{.*}}: !torch.vtensor<[1],f8E4M3FN>{{.*}}: !torch.vtensor<[1],f8E5M2FNUZ>{{.*}}: !torch.vtensor<[1],f8E4M3FNUZ>{{.*}}: !torch.vtensor<[1],f8E8M0FNU>
# CHECK-SAME: !torch.vtensor<[1],si64>{{.*}}: !torch.vtensor<[1],si32>{{.*}}: !torch.vtensor<[1],si16>{{.*}}: !torch.vtensor<[1],si8>
# CHECK-SAME: !torch.vtensor<[1],ui64>{{.*}}: !torch.vtensor<[1],ui32>{{.*}}: !torch.vtensor<[1],ui16>{{.*}}: !torch.vtensor<[1],ui8>
# CHECK-SAME: !torch.vtensor<[1],i1>{{.*}}: !torch.vtensor<[1],complex<f16>>{{.*}}: !torch.vtensor<[1],complex<f32>>{{.*}}: !torch.vtensor<[1],complex<f64>>
