# RUN: %PYTHON %s | FileCheck %s
"""State that linalg overwrites in place: memrefs, read before they are written."""

import torch

from fx_importer import lower


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x):
        before = self.count.clone()
        self.count.add_(x)
        return before


print(lower(Model(), torch.ones(4), mutation="mutable", output_type="linalg").module)

# CHECK: func.func @main(%[[STATE:.*]]: memref<4xf32> {fx_importer.state = "count"}, %[[X:.*]]: tensor<4xf32> {fx_importer.name = "x"}) -> tensor<4xf32>
# CHECK: %[[OLD:.*]] = bufferization.to_tensor %[[STATE]] restrict
# CHECK: %[[NEW:.*]] = linalg.generic {{.*}} ins(%[[OLD]], %[[X]]
# CHECK: %[[RESULT:.*]] = bufferization.alloc_tensor() copy(%[[OLD]])
# CHECK: bufferization.materialize_in_destination %[[NEW]] in restrict writable %[[STATE]]
# CHECK: return %[[RESULT]]
