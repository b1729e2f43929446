# RUN: %PYTHON %s | FileCheck %s
"""Dynamic sizes in StableHLO: windows counted by ceil_mode, running sums as loops, sorts with a dynamic iota."""

import torch
import torch.nn.functional as F

from fx_importer import export_and_import

ANY = torch.export.Dim.AUTO


def imported(function, *shape):
    sizes = dict.fromkeys(range(len(shape)), ANY)
    print(export_and_import(function, torch.ones(shape), dynamic_shapes=(sizes,), output_type="stablehlo"))


imported(lambda x: F.max_pool2d(x, 3, 2, padding=1, ceil_mode=True), 2, 3, 8, 8)

# The last window may reach one element further, and cannot start beyond the end: nothing is dropped.
# CHECK: func.func @main
# CHECK: "stablehlo.reduce_window"{{.*}}padding = dense<{{\[\[}}0, 0], [0, 0], [1, 2], [1, 2]]>
# CHECK: stablehlo.maximum
# CHECK: (tensor<?x?x?x?xf32>, tensor<f32>) -> tensor<?x?x?x?xf32>
# CHECK-NEXT: return

imported(lambda x: F.avg_pool1d(x, 2, 2, padding=1, ceil_mode=True), 2, 3, 8)

# It can: windows that start beyond the end are dropped, and averages divide by the elements inside.
# CHECK: func.func @main
# CHECK: "stablehlo.reduce_window"
# CHECK: stablehlo.add
# CHECK: stablehlo.minimum
# CHECK: stablehlo.real_dynamic_slice
# CHECK: stablehlo.dynamic_iota
# CHECK: stablehlo.divide {{.*}} : tensor<?x?x1x?xf32>

imported(lambda x: x.cumsum(1), 2, 3)

# CHECK: func.func @main(%[[X:.*]]: tensor<?x?xf32>
# CHECK: stablehlo.while({{.*}} = %[[X]]) : tensor<i64>, tensor<?x?xf32>
# CHECK: stablehlo.compare LT
# CHECK: stablehlo.dynamic_update_slice
# CHECK: stablehlo.real_dynamic_slice
# CHECK: stablehlo.add

imported(lambda x: x.topk(2), 3, 4)

# CHECK: func.func @main
# CHECK: stablehlo.dynamic_iota
# CHECK: "stablehlo.sort"{{.*}}is_stable = true
# CHECK: stablehlo.real_dynamic_slice {{.*}} -> tensor<?x2xf32>

imported(lambda x: x + F.conv2d(x, torch.ones(3, 3, 3, 3), padding=1), 2, 3, 8, 8)

# The size of a size-preserving convolution is simplified.
# CHECK: func.func @main(%[[X:.*]]: tensor<?x3x?x?xf32>
# CHECK: stablehlo.convolution
# CHECK-NEXT: stablehlo.add %[[X]]

imported(lambda x: x[:-1], 3, 4)

# The end may be 0, which is not the size of the axis.
# CHECK: func.func @main
# CHECK: %[[END:.*]] = stablehlo.maximum
# CHECK: %[[ROWS:.*]] = stablehlo.reshape %[[END]]
# CHECK: stablehlo.concatenate %[[ROWS]]
# CHECK-NOT: stablehlo.select
# CHECK: stablehlo.real_dynamic_slice
