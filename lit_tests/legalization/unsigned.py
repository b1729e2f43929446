# RUN: %PYTHON %s | FileCheck %s
"""linalg and TOSA compute in wider integers where the sign matters; StableHLO has unsigned integers."""

import torch

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def forward(self, x):
        return x.flatten(), x.float(), x < 100


for output_type in ("torch", "linalg", "tosa", "stablehlo"):
    print(output_type, export_and_import(Model(), torch.ones(2, 2, dtype=torch.uint8), output_type=output_type))

# CHECK: torch module
# CHECK: func.func @main(%arg0: !torch.vtensor<[2,2],ui8> {{.*}}"uint8"{{.*}}) -> (!torch.vtensor<[4],ui8> {{.*}}"uint8"{{.*}}, !torch.vtensor<[2,2],f32>{{.*}})
# CHECK: linalg {{.*}}
# CHECK: func.func @main(%arg0: tensor<2x2xi8> {{.*}}"uint8"{{.*}}) -> (tensor<4xi8> {{.*}}"uint8"{{.*}}, tensor<2x2xf32>{{.*}})
# CHECK: arith.andi %{{.*}}, %c255_i32
# CHECK: tosa {{.*}}
# CHECK: func.func @main(%arg0: tensor<2x2xi8> {{.*}}"uint8"{{.*}}) -> (tensor<4xi8> {{.*}}"uint8"{{.*}}, tensor<2x2xf32>{{.*}})
# CHECK: tosa.bitwise_and
# CHECK: stablehlo {{.*}}
# CHECK: func.func @main(%arg0: tensor<2x2xui8> {{.*}}"uint8"{{.*}}) -> (tensor<4xui8> {{.*}}"uint8"{{.*}}, tensor<2x2xf32>{{.*}})
# CHECK: stablehlo.convert %arg0 : (tensor<2x2xui8>) -> tensor<2x2xf32>
# CHECK: stablehlo.compare LT, %arg0, %{{.*}}, UNSIGNED : (tensor<2x2xui8>, tensor<2x2xui8>) -> tensor<2x2xi1>
