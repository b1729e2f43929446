# RUN: %PYTHON %s | FileCheck %s
"""External weights are named resources: those of the state dict, splats included, one per storage view."""

import torch

from fx_importer import lower


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3, bias=False)
        self.tied = torch.nn.Linear(3, 3, bias=False)
        self.tied.weight = self.first.weight
        self.zeros = torch.nn.Parameter(torch.zeros(3))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("shown", torch.tensor([1, 2, 3]), persistent=False)
        self.register_buffer("empty", torch.zeros(0, 2))

    def forward(self, x):
        return self.tied(self.first(x)) + self.zeros + torch.tensor([4.0, 5.0, 6.0]), self.mask, self.shown, self.empty


model, x = Model(), torch.ones(1, 3)
print(lower(model, x, output_type="torch", weights="external").module)

# CHECK: func.func @main(%{{[^)]*}}) ->
# CHECK-DAG: %[[W:.*]] = torch.vtensor.literal(dense_resource<{{first|tied}}.weight> : tensor<3x3xf32>)
# CHECK-DAG: %[[Z:.*]] = torch.vtensor.literal(dense_resource<zeros> : tensor<3xf32>)
# CHECK-DAG: torch.vtensor.literal(dense_resource<mask> : tensor<3xi1>)
# CHECK-DAG: torch.vtensor.literal(dense<[4.000000e+00, 5.000000e+00, 6.000000e+00]> : tensor<3xf32>)
# CHECK-DAG: torch.vtensor.literal(dense<> : tensor<0x2xf32>)
# CHECK-DAG: torch.vtensor.literal(dense_resource<shown> : tensor<3xsi64>)
# CHECK: return
# CHECK: dialect_resources
# CHECK-NOT: weight:
# CHECK: shown: "0x

print(lower(model, x, output_type="linalg-on-tensors", weights="args").module)

# CHECK: func.func @main(%{{.*}}: tensor<3xf32> {fx_importer.weight = "zeros"}, %[[W:.*]]: tensor<3x3xf32> {fx_importer.weight = "{{first|tied}}.weight"}, %{{.*}}: tensor<3xi1> {fx_importer.weight = "mask"}, %{{.*}}: tensor<1x3xf32> {fx_importer.name = "x"})
# CHECK: linalg.matmul indexing_maps = {{.*}} ins(%{{.*}}, %[[W]]

with torch.device("meta"):
    meta_model = Model()
print(lower(meta_model, x, output_type="tosa", weights="external").module)

# CHECK-DAG: dense_resource<{{first|tied}}.weight>
# CHECK-DAG: dense_resource<shown>
# CHECK: return
# CHECK-NOT: dialect_resources
