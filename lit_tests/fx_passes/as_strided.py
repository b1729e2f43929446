# RUN: %PYTHON %s | FileCheck %s
"""as_strided: a reshape where it is a dense view, a gather where it overlaps or skips. No output type has it."""

import torch

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def forward(self, x):
        return x.as_strided((6, 4), (4, 1)), x.as_strided((20, 5), (1, 1))


print(export_and_import(Model(), torch.randn(4, 6)))

# CHECK-LABEL: func.func @main
# CHECK-NOT: as_strided
# CHECK: torch.aten.reshape %arg0, {{.*}} -> !torch.vtensor<[6,4],f32>
# CHECK: %[[FLAT:.*]] = torch.aten.reshape %arg0, {{.*}} -> !torch.vtensor<[24],f32>
# CHECK: torch.aten.index.Tensor{{(_hacked_twin)?}} %[[FLAT]], {{.*}} -> !torch.vtensor<[20,5],f32>
# CHECK-NOT: as_strided
