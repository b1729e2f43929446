# RUN: %PYTHON %s | FileCheck %s
"""while_loop: its condition is carried, as are values that TOSA's regions capture; linalg updates tensors in place."""

import torch
from torch._higher_order_ops.while_loop import while_loop

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def forward(self, n, x):
        y = x.exp()
        return while_loop(lambda i, x: i > 0, lambda i, x: (i - 1, x * y), (n, x))


for output_type in ("tosa", "stablehlo", "linalg"):
    print(export_and_import(Model(), torch.tensor(3, dtype=torch.int32), torch.ones(2), output_type=output_type))

# CHECK: func.func @main(%[[N:.*]]: tensor<i32>{{.*}}, %[[X:.*]]: tensor<2xf32>{{.*}}) -> (tensor<i32>{{.*}}, tensor<2xf32>{{.*}})
# CHECK: %[[Y:.*]] = tosa.exp %[[X]]
# CHECK: %[[P:.*]] = tosa.greater %[[N]]
# CHECK-NEXT: %[[R:.*]]:4 = tosa.while_loop (%[[GO:.*]] = %[[P]], %[[I:.*]] = %[[N]], %[[A:.*]] = %[[X]], %[[B:.*]] = %[[Y]])
# CHECK-NEXT: tosa.yield %[[GO]] : tensor<i1>
# CHECK: } do {
# CHECK: %[[NEXT:.*]] = tosa.sub
# CHECK: %[[PRODUCT:.*]] = tosa.mul
# CHECK: %[[AGAIN:.*]] = tosa.greater %[[NEXT]]
# CHECK: tosa.yield %[[AGAIN]], %[[NEXT]], %[[PRODUCT]], %{{.*}} : tensor<i1>, tensor<i32>, tensor<2xf32>, tensor<2xf32>
# CHECK: return %[[R]]#1, %[[R]]#2

# CHECK: func.func @main(%[[N:.*]]: tensor<i32>{{.*}}, %[[X:.*]]: tensor<2xf32>{{.*}}) -> (tensor<i32>{{.*}}, tensor<2xf32>{{.*}})
# CHECK: %[[Y:.*]] = stablehlo.exponential %[[X]]
# CHECK: %[[P:.*]] = stablehlo.compare GT
# CHECK: %[[R:.*]]:3 = stablehlo.while(%[[GO:.*]] = %[[P]], %[[I:.*]] = %[[N]], %[[A:.*]] = %[[X]])
# CHECK-NEXT: cond {
# CHECK-NEXT: stablehlo.return %[[GO]]
# CHECK: do {
# CHECK: %[[PRODUCT:.*]] = stablehlo.multiply %[[A]], %[[Y]]
# CHECK: stablehlo.return %{{.*}}, %{{.*}}, %[[PRODUCT]]
# CHECK: return %[[R]]#1, %[[R]]#2

# CHECK: %[[P:.*]] = tensor.extract
# CHECK-DAG: %[[A:.*]] = tensor.expand_shape %arg1 {{.*}} : tensor<2xf32> into tensor<1x2xf32>
# CHECK-DAG: %[[I:.*]] = tensor.expand_shape %arg0 {{.*}} : tensor<i32> into tensor<1xi32>
# CHECK: %[[R:.*]]:2 = scf.while (%[[I0:.*]] = %[[I]], %[[A0:.*]] = %[[A]], %[[GO:.*]] = %[[P]])
# CHECK-NEXT: scf.condition(%[[GO]]) %[[I0]], %[[A0]]
# CHECK: ^bb0(%[[I1:.*]]: tensor<1xi32>, %[[A1:.*]]: tensor<1x2xf32>):
# CHECK: %[[OLD:.*]] = tensor.extract_slice %[[A1]][0, 0] [1, 2] [1, 1]
# CHECK: %[[NEW:.*]] = linalg.generic {{.*}} outs(%[[OLD]] :
# CHECK: %[[NEXT:.*]] = tensor.insert_slice %[[NEW]] into %[[A1]][0, 0] [1, 2] [1, 1]
# CHECK: scf.yield %{{.*}}, %[[NEXT]], %{{.*}} : tensor<1xi32>, tensor<1x2xf32>, i1
# CHECK: %[[X:.*]] = tensor.collapse_shape %[[R]]#1
# CHECK: %[[N:.*]] = tensor.collapse_shape %[[R]]#0
# CHECK: return %[[N]], %[[X]]
