# RUN: %PYTHON %s | FileCheck %s
"""In TOSA a complex tensor is a pair of real ones: arguments, constants and results have a further dimension."""

import torch

from fx_importer import export_and_import


class Rotation(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.turns = torch.nn.Buffer(torch.polar(torch.ones(3), torch.tensor([0.0, 1.0, 2.0])))

    def forward(self, x, z):
        return torch.view_as_real(torch.view_as_complex(x) * self.turns), z.conj()


print(export_and_import(Rotation(), torch.ones(4, 3, 2), torch.ones(2, dtype=torch.complex64), output_type="tosa"))

# CHECK: func.func @main(%[[X:.*]]: tensor<4x3x2xf32> {fx_importer.name = "x"}, %[[Z:.*]]: tensor<2x2xf32> {fx_importer.dtype = "complex64", fx_importer.name = "z"})
# CHECK-SAME: -> (tensor<4x3x2xf32> {fx_importer.name = "output[0]"}, tensor<2x2xf32> {fx_importer.dtype = "complex64", fx_importer.name = "output[1]"})
# The parts of the buffer are constants of their own.
# CHECK-DAG: tosa.const{{.*}} tensor<1x3xf32>
# CHECK-DAG: tosa.const{{.*}} tensor<1x3xf32>
# CHECK: tosa.slice %[[X]]
# CHECK: tosa.slice %[[X]]
# CHECK-NOT: tosa.concat
# CHECK-COUNT-4: tosa.mul
# CHECK: %[[REAL:.*]] = tosa.reshape {{.*}} -> tensor<4x3x1xf32>
# CHECK: %[[IMAGINARY:.*]] = tosa.reshape {{.*}} -> tensor<4x3x1xf32>
# CHECK: tosa.concat %[[REAL]], %[[IMAGINARY]] {axis = 2 : i32}
