# RUN: %PYTHON %s | FileCheck %s
"""torch.cond, nested and closing over a parameter. TOSA's regions capture nothing; StableHLO's may."""

import torch

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(3))

    def forward(self, x):
        y = x.exp()

        def inner(t):
            return torch.cond(t.max() > 0, lambda u: u * y, lambda u: u - self.weight, (t,))

        return torch.cond(x.sum() > 0, lambda t: (t + self.weight, y * 2), lambda t: (inner(t), t * y), (x,))


for output_type in ("tosa", "stablehlo"):
    print(export_and_import(Model(), torch.ones(3), output_type=output_type))

# CHECK: func.func @main(%[[X:.*]]: tensor<3xf32>{{.*}}) -> (tensor<3xf32>{{.*}}, tensor<3xf32>{{.*}})
# CHECK: %[[Y:.*]] = tosa.exp %[[X]]
# CHECK: %[[P:.*]] = tosa.greater
# CHECK-NEXT: %[[R:.*]]:2 = tosa.cond_if %[[P]] (%[[A:.*]] = %[[X]], %[[B:.*]] = %[[Y]]) : tensor<i1> (tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
# CHECK-NEXT: ^bb0(%[[A]]: tensor<3xf32>, %[[B]]: tensor<3xf32>):
# CHECK: %[[W:.*]] = "tosa.const"() <{values = dense_resource<weight> : tensor<3xf32>}>
# CHECK: %[[SUM:.*]] = tosa.add %[[A]], %[[W]]
# CHECK: %[[TWICE:.*]] = tosa.mul %[[B]]
# CHECK: tosa.yield %[[SUM]], %[[TWICE]]
# CHECK: } else {
# CHECK: ^bb0(%[[C:.*]]: tensor<3xf32>, %[[D:.*]]: tensor<3xf32>):
# CHECK: %[[Q:.*]] = tosa.greater
# CHECK: tosa.cond_if %[[Q]] (%[[E:.*]] = %[[C]], %[[F:.*]] = %[[D]]) : tensor<i1> (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32> {
# CHECK: tosa.mul %[[E]], %[[F]]
# CHECK: } else {
# CHECK: "tosa.const"() <{values = dense_resource<weight> : tensor<3xf32>}>
# CHECK: tosa.sub
# CHECK: return %[[R]]#0, %[[R]]#1

# CHECK: func.func @main(%[[X:.*]]: tensor<3xf32>{{.*}}) -> (tensor<3xf32>{{.*}}, tensor<3xf32>{{.*}})
# CHECK: %[[W:.*]] = stablehlo.constant dense_resource<weight>
# CHECK: %[[Y:.*]] = stablehlo.exponential %[[X]]
# CHECK: %[[P:.*]] = stablehlo.compare GT
# CHECK: %[[R:.*]]:2 = "stablehlo.if"(%[[P]]) ({
# CHECK-NEXT: %[[SUM:.*]] = stablehlo.add %[[X]], %[[W]]
# CHECK: %[[TWICE:.*]] = stablehlo.multiply %[[Y]]
# CHECK-NEXT: stablehlo.return %[[SUM]], %[[TWICE]]
# CHECK: }, {
# CHECK: %[[Q:.*]] = stablehlo.compare GT
# CHECK: "stablehlo.if"(%[[Q]]) ({
# CHECK-NEXT: stablehlo.multiply %[[X]], %[[Y]]
# CHECK: }, {
# CHECK-NEXT: stablehlo.subtract %[[X]], %[[W]]
# CHECK: return %[[R]]#0, %[[R]]#1
