# RUN: %PYTHON %s | FileCheck %s
"""Equal layers are one private function; operands that are the same constant in all calls are inside it."""

import torch
from torch import nn

from fx_importer import export_and_import


class Layer(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table, self.scale = table, nn.Parameter(torch.randn(4))

    def forward(self, x):
        for _ in range(8):
            x = (x * self.scale).sin() + self.table
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        table = nn.Parameter(torch.randn(4))
        self.layers = nn.ModuleList(Layer(table) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


for output_type in ("raw", "torch", "linalg", "stablehlo", "tosa"):
    print(export_and_import(Model(), torch.ones(2, 4), output_type=output_type, outline_layers=True))

# CHECK-LABEL: func.func @main(
# CHECK-DAG: %[[A:.*]] = torch.vtensor.literal(dense_resource<layers.0.scale>
# CHECK-DAG: %[[B:.*]] = torch.vtensor.literal(dense_resource<layers.1.scale>
# CHECK-DAG: %[[C:.*]] = torch.vtensor.literal(dense_resource<layers.2.scale>
# CHECK: %[[X:.*]] = call @main.Layer(%arg0, %[[A]])
# CHECK: %[[Y:.*]] = call @main.Layer(%[[X]], %[[B]])
# CHECK: %[[Z:.*]] = call @main.Layer(%[[Y]], %[[C]])
# CHECK: return %[[Z]]
# CHECK-LABEL: func.func private @main.Layer(
# CHECK-SAME: attributes {no_inline}
# CHECK: torch.vtensor.literal(dense_resource<layers.{{.}}.table>
# CHECK-COUNT-8: torch.aten.sin
# CHECK-NOT: torch.aten.sin

# The torch dialect marks the function as not to be inlined; the other output types do not.
# CHECK-LABEL: func.func @main(
# CHECK-COUNT-3: call @main.Layer
# CHECK: func.func private @main.Layer({{.*}} attributes {no_inline}

# CHECK-LABEL: func.func @main(
# CHECK-COUNT-3: call @main.Layer({{.*}} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
# CHECK: func.func private @main.Layer({{.*}} -> tensor<2x4xf32> {
# CHECK-COUNT-8: math.sin

# CHECK-LABEL: func.func @main(
# CHECK-COUNT-3: call @main.Layer({{.*}} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
# CHECK: func.func private @main.Layer({{.*}} -> tensor<2x4xf32> {
# CHECK-COUNT-8: stablehlo.sine

# CHECK-LABEL: func.func @main(
# CHECK-COUNT-3: call @main.Layer
# CHECK: func.func private @main.Layer({{.*}} -> tensor<2x4xf32> {
# CHECK-COUNT-8: tosa.sin
