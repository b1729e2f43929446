# RUN: %PYTHON %s | FileCheck %s
"""A dimension of a scalar: computed on a vector of one element, since C++ lowerings fail or crash on the scalar."""

import torch

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def forward(self, x):
        return x.amax(0, keepdim=True), x.argmax(0)


for output_type in ("raw", "linalg", "stablehlo"):
    print(export_and_import(Model(), torch.tensor(2.5), output_type=output_type))

# CHECK-LABEL: func.func @main
# CHECK: %[[VECTOR:.*]] = torch.aten.unsqueeze %arg0, {{.*}} -> !torch.vtensor<[1],f32>
# CHECK: %[[MAXIMUM:.*]] = torch.aten.amax %[[VECTOR]]
# CHECK: torch.aten.squeeze.dim %[[MAXIMUM]], {{.*}} -> !torch.vtensor<[],f32>

# CHECK-LABEL: func.func @main(%arg0: tensor<f32>{{[^:>]*}}) -> (tensor<f32>{{[^:>]*}}, tensor<i64>{{[^:>]*}})
# CHECK-LABEL: func.func @main(%arg0: tensor<f32>{{[^:>]*}}) -> (tensor<f32>{{[^:>]*}}, tensor<i64>{{[^:>]*}})
