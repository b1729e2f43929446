# RUN: %PYTHON %s | FileCheck %s
"""A scalar for a Tensor parameter, without a Scalar overload, is a rank-0 tensor of the promoted dtype."""

import torch

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten.atan2.default(x, 2.0), torch.ops.aten.maximum.default(x, 3)


importer = FxImporter()
gm = torch.fx.symbolic_trace(Model())
fake = torch._subclasses.FakeTensorMode().from_tensor(torch.ones(2, dtype=torch.bfloat16))
for node in gm.graph.nodes:
    node.meta["val"] = fake
importer.import_graph_module(gm)
print(importer.module)

# CHECK: %[[TWO:.*]] = torch.vtensor.literal(dense<2.000000e+00> : tensor<bf16>) : !torch.vtensor<[],bf16>
# CHECK: torch.aten.atan2 %arg0, %[[TWO]]
# CHECK: %[[THREE:.*]] = torch.vtensor.literal(dense<3.000000e+00> : tensor<bf16>)
# CHECK: torch.aten.maximum %arg0, %[[THREE]]
