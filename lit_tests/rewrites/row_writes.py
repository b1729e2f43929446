# RUN: %PYTHON %s | FileCheck %s
"""Rows of a static cache are written as one slice, which a mutable state takes in place; others as a slice each, in a loop if they are many."""

import torch

from fx_importer import lower


class Cache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows: torch.Tensor
        self.register_buffer("rows", torch.zeros(1, 2, 8, 4))

    def forward(self, x, at):
        self.rows.index_copy_(2, at, x)
        return self.rows.sum()


class Counted(Cache):
    def forward(self, x, at):
        return super().forward(x, at + torch.arange(x.shape[2]))


x, at = torch.ones(1, 2, 3, 4), torch.tensor([1, 5, 2])
print(lower(Counted(), x, at[0], mutation="mutable", output_type="linalg-on-tensors").module)
print(lower(Cache(), x, at, mutation="functional", output_type="linalg-on-tensors").module)
rows = torch.export.Dim("rows")
dynamic = ({2: rows}, {0: rows})
print(lower(Cache(), x, at, mutation="functional", output_type="linalg-on-tensors", dynamic_shapes=dynamic).module)
print(lower(Counted(), x, at[0], mutation="functional", output_type="stablehlo").module)

# CHECK: func.func @main(%[[STATE:.*]]: memref<1x2x8x4xf32>
# CHECK: %[[ROWS:.*]] = bufferization.to_tensor %[[STATE]] restrict writable
# CHECK: %[[START:.*]] = arith.index_cast
# CHECK: %[[NEW:.*]] = tensor.insert_slice %{{.*}} into %[[ROWS]][0, 0, %[[START]], 0] [1, 2, 3, 4] [1, 1, 1, 1]
# CHECK: bufferization.materialize_in_destination %[[NEW]] in restrict writable %[[STATE]]

# CHECK: func.func @main
# CHECK-NOT: scf.for
# CHECK: tensor.insert_slice %{{.*}} into %arg0[0, 0, %{{.*}}, 0] [1, 2, 1, 4] [1, 1, 1, 1]
# CHECK-COUNT-2: tensor.insert_slice

# CHECK: func.func @main
# CHECK: scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} iter_args(%[[OUT:.*]] = %arg0)
# CHECK: tensor.extract_slice %arg1[0, 0, %[[I]], 0] [1, 2, 1, 4] [1, 1, 1, 1]
# CHECK: tensor.insert_slice %{{.*}} into %[[OUT]][0, 0, %{{.*}}, 0] [1, 2, 1, 4] [1, 1, 1, 1]

# CHECK: func.func @main
# CHECK-NOT: stablehlo.scatter
# CHECK: stablehlo.dynamic_update_slice %arg0
