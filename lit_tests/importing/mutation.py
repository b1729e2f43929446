# RUN: %PYTHON %s | FileCheck %s
"""State that a program mutates: state in and out, or overwritten in place."""

import torch
from torch.export import export

from fx_importer.importing import import_program
from fx_importer.options import ImportOptions, Mutation


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(4))
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, x, y):
        self.cache.add_(x)
        y.mul_(2)
        return self.cache + self.table


program = export(Model(), (torch.ones(4), torch.ones(4))).run_decompositions({})
for mutation in (Mutation.FUNCTIONAL, Mutation.MUTABLE):
    print(import_program(program, ImportOptions(func_name=mutation.value, mutation=mutation)))

# CHECK-LABEL: func.func @functional(%arg0: !torch.vtensor<[4],f32>{{[^:>]*}}, %arg1: !torch.vtensor<[4],f32>{{[^:>]*}}, %arg2: !torch.vtensor<[4],f32>{{[^:>]*}}) -> (!torch.vtensor<[4],f32>{{[^:>]*}}, !torch.vtensor<[4],f32>{{[^:>]*}}, !torch.vtensor<[4],f32>{{[^:>]*}})
# CHECK: %[[T:.*]] = torch.vtensor.literal(dense_resource<table>
# CHECK: %[[CACHE:.*]] = torch.aten.add.Tensor %arg0, %arg1
# CHECK: %[[Y:.*]] = torch.aten.mul.Scalar %arg2
# CHECK: %[[R:.*]] = torch.aten.add.Tensor %[[CACHE]], %[[T]]
# CHECK: return %[[CACHE]], %[[Y]], %[[R]]

# CHECK-LABEL: func.func @mutable(%arg0: !torch.tensor<[4],f32>{{[^:>]*}}, %arg1: !torch.vtensor<[4],f32>{{[^:>]*}}, %arg2: !torch.tensor<[4],f32>{{[^:>]*}}) -> !torch.vtensor<[4],f32>
# CHECK: %[[OLD:.*]] = torch.copy.to_vtensor %arg0
# CHECK: %[[NEW:.*]] = torch.aten.add.Tensor %[[OLD]], %arg1
# CHECK: torch.overwrite.tensor.contents %[[NEW]] overwrites %arg0
# CHECK: torch.overwrite.tensor.contents %{{.*}} overwrites %arg2
