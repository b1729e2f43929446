# RUN: %PYTHON %s | FileCheck %s
"""flex_attention is inlined: scores, score_mod with captured values, mask_mod, softmax; block masks are dropped."""

import torch
from torch.export import export
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from fx_importer import FxImporter, UnsupportedProgramError, export_and_import


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.rand(2))

    def forward(self, q, k, v):
        mask = create_block_mask(lambda b, h, row, column: row >= column, None, None, 8, 8, device="cpu")
        return flex_attention(
            q, k, v, block_mask=mask, score_mod=lambda s, b, h, row, column: s + self.slopes[h] * (column - row)
        )


qkv = [torch.rand(1, 2, 8, 4) for _ in range(3)]
print(export_and_import(Model(), *qkv, decomposition_table={}))
try:
    FxImporter().import_frozen_program(export(Model(), (*qkv,)).run_decompositions({}))
except UnsupportedProgramError as error:
    print(error)

# CHECK-LABEL: func.func @main
# CHECK-NOT: sort
# CHECK: %[[SLOPES:.*]] = torch.vtensor.literal(dense_resource<slopes>
# CHECK: torch.aten.bmm {{.*}} -> !torch.vtensor<[2,8,8],f32>
# CHECK-DAG: torch.aten.ge.Tensor {{.*}} -> !torch.vtensor<[8,8],i1>
# CHECK-DAG: torch.aten.index.Tensor %[[SLOPES]]
# CHECK: torch.aten.where
# CHECK: torch.aten.amax
# CHECK: torch.aten.exp
# CHECK: torch.aten.sum.dim_IntList
# CHECK: torch.aten.bmm
# CHECK-NOT: torch.aten.log
# CHECK: flex_attention is written out before the import
