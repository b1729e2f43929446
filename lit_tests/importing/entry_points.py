# RUN: %PYTHON %s | FileCheck %s
"""Several programs in one module: weights are shared; state mutated by one is an argument of both."""

import torch
from torch.export import export

from fx_importer import lower


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(4))
        self.register_buffer("cache", torch.zeros(4))

    def forward(self, x, write: bool):
        if write:
            self.cache.copy_(x * self.weight)
        return self.cache + self.weight


model, x = Model(), torch.ones(4)
programs = {"write": export(model, (x, True)), "read": export(model, (x, False))}
print(lower(programs, mutation="functional", output_type="torch").module)

# CHECK: func.func @write(%[[OLD:.*]]: !torch.vtensor<[4],f32> {fx_importer.state = "cache"}, %[[X:.*]]: !torch.vtensor<[4],f32> {fx_importer.name = "x"}, %{{.*}}: !torch.bool {fx_importer.name = "write"}) -> (!torch.vtensor<[4],f32> {fx_importer.state = "cache"}, !torch.vtensor<[4],f32>)
# CHECK: dense_resource<weight>
# CHECK: func.func @read(%[[CACHE:.*]]: !torch.vtensor<[4],f32> {fx_importer.state = "cache"}
# CHECK: %[[W:.*]] = torch.vtensor.literal(dense_resource<weight>
# CHECK: torch.aten.add.Tensor %[[CACHE]], %[[W]]
# CHECK: dialect_resources
# CHECK: weight:
# CHECK-NOT: weight_
