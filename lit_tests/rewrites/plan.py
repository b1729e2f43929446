# RUN: %PYTHON %s | FileCheck %s
"""A plan: shardings of arguments and results, and products whose batch dimensions stay apart."""

import torch

from fx_importer import lower


class Attention(torch.nn.Module):
    def forward(self, x, keys):
        return torch.softmax(x @ keys.repeat_interleave(2, 1).mT, -1)


plan = {"x": {"dp": 0, "tp": 1}, "keys": {"dp": 0, "tp": 1}, "output": {"dp": 0}}
inputs = torch.ones(2, 8, 3, 5), torch.ones(2, 4, 7, 5)
print(lower(Attention(), *inputs, output_type="stablehlo", mesh="dp=2,tp=4", plan=plan).module)

# CHECK: xla.sdy.meshes = "{mesh = #sdy.mesh<[\22dp\22=2, \22tp\22=4]>}"
# CHECK-SAME: mhlo.num_partitions = 8 : i32
# CHECK-LABEL: func.func @main
# CHECK-SAME: %[[X:.*]]: tensor<2x8x3x5xf32> {fx_importer.name = "x"
# CHECK-SAME: xla.sdy.sharding = "#sdy.sharding<@mesh, [{\22dp\22}, {\22tp\22}, {}, {}]>"
# CHECK-SAME: mhlo.sharding = "{devices=[2,4,1,1]<=[8]}"
# CHECK-SAME: -> (tensor<2x8x3x7xf32> {
# CHECK-SAME: mhlo.sharding = "{devices=[2,1,1,1,4]<=[8] last_tile_dim_replicate}"
# CHECK: stablehlo.dot_general
# CHECK-SAME: batching_dims = [0, 1{{(, 2)?}}] x [0, 1{{(, 2)?}}]
# CHECK-NOT: tensor<16x
