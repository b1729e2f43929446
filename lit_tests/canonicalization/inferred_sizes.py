# RUN: %PYTHON %s | FileCheck %s
"""The single symbolic size of a reshape is inferred: no size is read, and TOSA takes a dynamic batch."""

import torch
from torch.export import Dim

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def forward(self, x):
        return x.view(x.shape[0], 12)


for output_type in ("raw", "tosa"):
    x = torch.randn(2, 3, 4)
    print(export_and_import(Model(), x, output_type=output_type, dynamic_shapes=({0: Dim("batch")},)))

# CHECK-LABEL: func.func @main
# CHECK-NOT: aten.size
# CHECK-DAG: %[[INFERRED:.*]] = torch.constant.int -1
# CHECK-DAG: %[[TWELVE:.*]] = torch.constant.int 12
# CHECK: %[[SIZES:.*]] = torch.prim.ListConstruct %[[INFERRED]], %[[TWELVE]]
# CHECK: torch.aten.reshape %arg0, %[[SIZES]]

# CHECK-LABEL: func.func @main(%arg0: tensor<?x3x4xf32>{{[^:>]*}}) -> (tensor<?x12xf32>
# CHECK: tosa.const_shape {{.*}}dense<[-1, 12]>
# CHECK: tosa.reshape %arg0
