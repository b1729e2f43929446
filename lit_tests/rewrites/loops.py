# RUN: %PYTHON %s | FileCheck %s
"""Scans, scatters and sorts in linalg: scf loops, with all other dimensions parallel inside."""

import torch

from fx_importer import lower


def show(name, program, *inputs):
    print(f"// {name}")
    print(lower(program, *inputs, output_type="linalg").module)


show("scan", lambda x: x.cumsum(1), torch.ones(2, 3, 4))

# CHECK-LABEL: // scan
# CHECK: func.func @main(%[[X:[a-z0-9]*]]: tensor<2x3x4xf32>
# CHECK: scf.for %[[I:.*]] = %c0 to %c3 step %c1 iter_args(%[[OUT:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}}) -> (tensor<2x3x4xf32>, tensor<1x2x4xf32>)
# CHECK: %[[BEFORE:.*]] = tensor.extract_slice %[[SUM]][0, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<1x2x4xf32> to tensor<2x4xf32>
# CHECK: %[[FROM:.*]] = tensor.extract_slice %[[X]][0, %[[I]], 0] [2, 1, 4] [1, 1, 1] : tensor<2x3x4xf32> to tensor<2x4xf32>
# CHECK: %[[DONE:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]} ins(%[[FROM]] : {{.*}}) outs(%[[BEFORE]] :
# CHECK: arith.addf
# CHECK: %[[NEXT:.*]] = tensor.insert_slice %[[DONE]] into %[[OUT]][0, %[[I]], 0]
# CHECK: %[[AFTER:.*]] = tensor.insert_slice %[[DONE]] into %[[SUM]][0, 0, 0]
# CHECK: scf.yield %[[NEXT]], %[[AFTER]]

show("numbers", lambda x, i, y: x.scatter_add(0, i, y), torch.ones(4, 3), torch.ones(2, 3).long(), torch.ones(2, 3))

# CHECK-LABEL: // numbers
# CHECK: scf.for
# CHECK: %[[ROW:.*]] = arith.index_cast
# CHECK: %[[COLUMN:.*]] = arith.index_cast
# CHECK: tensor.extract %{{.*}}[%[[ROW]], %[[COLUMN]]]
# CHECK: arith.addf
# CHECK: tensor.insert %{{.*}} into %{{.*}}[%[[ROW]], %[[COLUMN]]]

show("rows", lambda x, i, y: x.index_put((i,), y, True), torch.ones(4, 3), torch.ones(2).long(), torch.ones(2, 3))

# CHECK-LABEL: // rows
# CHECK: scf.for
# CHECK: %[[ROW:.*]] = arith.index_cast
# CHECK: tensor.extract_slice %{{.*}}[%[[ROW]], 0] [1, 3] [1, 1]
# CHECK: linalg.generic
# CHECK: arith.addf
# CHECK: tensor.insert_slice %{{.*}} into %{{.*}}[%[[ROW]], 0] [1, 3] [1, 1]

show("sort", lambda x: x.sort(0), torch.ones(8, 3))

# CHECK-LABEL: // sort
# CHECK: scf.for %[[J:.*]] = %c0 to %c3 step %c1 iter_args
# CHECK: tensor.extract_slice %{{.*}}[0, %[[J]]] [8, 1] [1, 1] : tensor<8x3xf32> to tensor<8xf32>
# CHECK: scf.while
# CHECK: scf.for
# CHECK: scf.for
# CHECK: tensor.extract %[[ROWS:.*]][%[[SIDE:.*]], %{{.*}}] : tensor<2x8xf32>
# CHECK: %[[RIGHT:.*]] = tensor.extract %[[ROWS]][%[[SIDE]], %{{.*}}] : tensor<2x8xf32>
# CHECK: arith.cmpf ole, %{{.*}}, %[[RIGHT]] : f32
# CHECK: arith.cmpf uno, %[[RIGHT]], %[[RIGHT]] : f32
# CHECK: tensor.insert %{{.*}} into %[[ROWS]][%[[OTHER:.*]], %{{.*}}] : tensor<2x8xf32>
# CHECK-NOT: tm_tensor
