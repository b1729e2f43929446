# RUN: %PYTHON %s | FileCheck %s
"""The single symbolic size of a reshape is inferred: no size is read. TOSA computes the others by shape operations."""

import torch
from torch.export import Dim

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def forward(self, x):
        return x.view(x.shape[0], 12)


for output_type in ("raw", "tosa"):
    x = torch.randn(2, 3, 4)
    print(export_and_import(Model(), x, output_type=output_type, dynamic_shapes=({0: Dim("batch")},)))


class Heads(torch.nn.Module):
    def forward(self, x):
        return x.view(x.shape[0], x.shape[1], 2, 2)


sizes = ({0: Dim("batch"), 1: Dim("length")},)
print(export_and_import(Heads(), torch.randn(2, 3, 4), output_type="tosa", dynamic_shapes=sizes))

# CHECK-LABEL: func.func @main
# CHECK-NOT: aten.size
# CHECK-DAG: %[[INFERRED:.*]] = torch.constant.int -1
# CHECK-DAG: %[[TWELVE:.*]] = torch.constant.int 12
# CHECK: %[[SIZES:.*]] = torch.prim.ListConstruct %[[INFERRED]], %[[TWELVE]]
# CHECK: torch.aten.reshape %arg0, %[[SIZES]]

# CHECK-LABEL: func.func @main(%arg0: tensor<?x3x4xf32>{{[^:>]*}}) -> (tensor<?x12xf32>
# CHECK: tosa.const_shape {{.*}}dense<[-1, 12]>
# CHECK: tosa.reshape %arg0

# CHECK-LABEL: func.func @main(%arg0: tensor<?x?x4xf32>
# CHECK-DAG: %[[HEADS:.*]] = tosa.const_shape {{.*}}dense<2> : tensor<2xindex>
# CHECK-DAG: %[[BATCH:.*]] = tosa.dim %arg0 {axis = 0 : i32}
# CHECK-DAG: %[[LENGTH:.*]] = tosa.dim %arg0 {axis = 1 : i32}
# CHECK: %[[SHAPE:.*]] = tosa.concat_shape %[[BATCH]], %[[LENGTH]], %[[HEADS]]
# CHECK: tosa.reshape %arg0, %[[SHAPE]]
