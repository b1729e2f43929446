# RUN: %PYTHON %s | FileCheck %s
"""A slice with a computed start is a gather in TOSA, and a write there a select by position."""

import torch

from fx_importer import export_and_import


class Read(torch.nn.Module):
    def forward(self, x, at):
        place = at.item()
        torch._check(place >= 0)
        torch._check(place <= 3)
        return x.narrow(0, place, 2)


class Written(torch.nn.Module):
    def forward(self, x, row, at):
        place = at.item()
        torch._check(place >= 0)
        torch._check(place <= 4)
        return torch.slice_scatter(x, row, 0, place, place + 1)


x, at = torch.randn(5, 3), torch.tensor(1)
print(export_and_import(Read(), x, at, output_type="tosa"))
print(export_and_import(Written(), x, x[:1], at, output_type="stablehlo"))
print(export_and_import(Read(), x, at, output_type="linalg-on-tensors"))

# CHECK-LABEL: func.func @main(%arg0: tensor<5x3xf32>
# CHECK-NOT: tosa.slice
# CHECK: %[[FROM_END:.*]] = tosa.add %arg1
# CHECK: tosa.select %{{.*}}, %[[FROM_END]], %arg1
# CHECK: tosa.gather
# CHECK-NOT: tosa.slice
# CHECK: return {{.*}}tensor<2x3xf32>

# CHECK-LABEL: func.func @main(%arg0: tensor<5x3xf32>
# CHECK-NOT: dynamic_update_slice
# CHECK: %[[ROWS:.*]] = "stablehlo.gather"(%arg1,
# CHECK: stablehlo.select %{{.*}}, %[[ROWS]], %arg0 : tensor<5x3xi1>

# CHECK-LABEL: func.func @main(%arg0: tensor<5x3xf32>
# CHECK: tensor.extract_slice %arg0[%{{.*}}, 0] [2, 3] [1, 1]
