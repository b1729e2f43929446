# RUN: %PYTHON %s | FileCheck %s
"""getitem on results and on lists; lists with None; tensors of several shapes in one list."""

import torch
from torch.export import export

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def forward(self, x, i):
        values, indices = x.max(1)
        a, b = x.split([1, 3], 1)
        return values, indices, a, b, x[:, i], torch.cat([a, b], 1)


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(2, 4), torch.tensor([0, 1]))).run_decompositions({}))
print(importer.module)

# CHECK: %[[VALUES:.*]], %[[INDICES:.*]] = torch.aten.max.dim
# CHECK: %[[PARTS:.*]] = torch.aten.split_with_sizes {{.*}} -> !torch.list<vtensor>
# CHECK: %[[A:.*]] = torch.aten.__getitem__.t %[[PARTS]], {{.*}} -> !torch.vtensor<[2,1],f32>
# CHECK: %[[B:.*]] = torch.aten.__getitem__.t %[[PARTS]], {{.*}} -> !torch.vtensor<[2,3],f32>
# CHECK: torch.prim.ListConstruct %{{.*}}, %arg1 : (!torch.none, !torch.vtensor<[2],si64>) -> !torch.list<optional<vtensor>>
# CHECK: torch.prim.ListConstruct %[[A]], %[[B]] : {{.*}} -> !torch.list<vtensor>
# CHECK: return %[[VALUES]], %[[INDICES]], %[[A]], %[[B]]
