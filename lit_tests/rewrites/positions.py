# RUN: %PYTHON %s linalg-on-tensors | FileCheck %s --check-prefix=LINALG
# RUN: %PYTHON %s stablehlo | FileCheck %s --check-prefix=STABLEHLO
# RUN: %PYTHON %s tosa | FileCheck %s --check-prefix=TOSA
"""Elements are read at indices of the indexed axes alone: positions of the others are the loop's, or a slice."""

import sys

import torch

from fx_importer import export_and_import


class Reads(torch.nn.Module):
    def forward(self, x, indices):
        return x[:, indices], x[torch.arange(4), indices], torch.linalg.cross(x, x + 1)


class Contraction(torch.nn.Module):
    def forward(self, x, y):
        return torch.einsum("ijk,ik->j", x, y)


class Mask(torch.nn.Module):
    def forward(self, x, last):
        return torch.arange(x.shape[0]) <= last[:, None]


OUTPUT_TYPE = sys.argv[1]
print(export_and_import(Reads(), torch.ones(4, 3), torch.tensor([0, -1, 2, 1]), output_type=OUTPUT_TYPE))
print(export_and_import(Contraction(), torch.ones(4, 2, 3), torch.ones(4, 3), output_type=OUTPUT_TYPE))
SIZES = ({0: torch.export.Dim("n")}, None)
print(export_and_import(Mask(), torch.ones(4), torch.tensor([2, 3]), output_type=OUTPUT_TYPE, dynamic_shapes=SIZES))

# LINALG-LABEL: func.func @main
# LINALG: linalg.generic {{.*}} ins(%{{.*}} : tensor<4xi64>)
# LINALG-NEXT: ^bb0
# LINALG-NEXT: linalg.index 0
# LINALG: tensor.extract
# LINALG: linalg.generic {{.*}} ins(%{{.*}} : tensor<4xi64>)
# LINALG-NEXT: ^bb0
# LINALG-NEXT: linalg.index 0
# LINALG: tensor.extract
# LINALG-NOT: tensor.extract %
# LINALG-NOT: linalg.index
# LINALG: return
# LINALG-LABEL: func.func @main(%{{.*}}: tensor<?xf32>
# LINALG: linalg.index
# LINALG: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<{{.*}}>, tensor<{{.*}}>)
# LINALG: return

# STABLEHLO-LABEL: func.func @main
# STABLEHLO: "stablehlo.gather"{{.*}}offset_dims = [0], collapsed_slice_dims = [1]
# STABLEHLO: "stablehlo.gather"
# STABLEHLO-NOT: "stablehlo.gather"
# STABLEHLO: return

# TOSA-LABEL: func.func @main(%{{.*}}: tensor<4x2x3xf32>
# TOSA: tosa.transpose
# TOSA-NOT: tosa.transpose
# TOSA: return
