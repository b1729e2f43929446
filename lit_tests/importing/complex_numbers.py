# RUN: %PYTHON %s | FileCheck %s
"""The torch dialect has no complex scalar: a complex number is a rank-0 tensor, for the tensor overload."""

import torch

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def forward(self, x, y):
        return x * 2j, y + 1j, torch.full((3,), 1 + 2j) - x


print(export_and_import(Model(), torch.ones(3, dtype=torch.complex64), torch.ones(3)))

# CHECK: %[[NUMBER:.*]] = torch.vtensor.literal(dense<(0.000000e+00,2.000000e+00)> : tensor<complex<f32>>) : !torch.vtensor<[],complex<f32>>
# CHECK: torch.aten.mul.Tensor %arg0, %[[NUMBER]] :
# CHECK: torch.aten.add.Tensor %arg1, %{{.*}}, %{{.*}} : !torch.vtensor<[3],f32>, !torch.vtensor<[],complex<f32>>, !torch.int -> !torch.vtensor<[3],complex<f32>>
# CHECK: torch.vtensor.literal(dense<(1.000000e+00,2.000000e+00)> : tensor<3xcomplex<f32>>)
