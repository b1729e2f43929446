# RUN: %PYTHON %s | FileCheck %s
"""Arithmetic on sizes, by those scalar operations of the torch dialect that can be lowered."""

import torch
from torch.export import Dim, export

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0] - 9
        return (
            n % 4,
            abs(n),
            round(n / 2),
            torch.sym_float(n) < 1.5,
            torch.sym_ite(n > 0, n, x.shape[0]),
            3 ** x.shape[0],
            n << 2,
        )


importer = FxImporter()
program = export(Model(), (torch.ones(6),), dynamic_shapes=({0: Dim("batch", min=2, max=64)},))
importer.import_frozen_program(program)
print(importer.module)

# CHECK: %[[N:.*]] = torch.aten.sub.int

# Remainders have the sign of the divisor: n - n // 4 * 4.
# CHECK: %[[Q:.*]] = torch.aten.floordiv.int %[[N]], %[[FOUR:.*]] :
# CHECK: %[[P:.*]] = torch.aten.mul.int %[[Q]], %[[FOUR]]
# CHECK: %[[MOD:.*]] = torch.aten.sub.int %[[N]], %[[P]]

# CHECK: %[[T:.*]] = torch.prim.NumToTensor.Scalar %[[N]]
# CHECK: %[[A:.*]] = torch.aten.abs %[[T]]
# CHECK: %[[ABS:.*]] = torch.aten.Int.Tensor %[[A]]

# CHECK: torch.aten.div.float
# CHECK: torch.aten.round
# CHECK: %[[ROUND:.*]] = torch.aten.ceil.float

# CHECK: %[[LESS:.*]] = torch.aten.gt.float %float1.5{{.*}}, %{{.*}} :

# CHECK: %[[C:.*]] = torch.aten.gt.int %[[N]], %int0
# CHECK: %[[ITE:.*]] = torch.prim.If %[[C]] -> (!torch.int) {
# CHECK: torch.prim.If.yield %[[N]]
# CHECK: torch.prim.If.yield %{{.*}} : !torch.int

# CHECK: %[[POWER:.*]] = torch.prim.Loop

# CHECK: %[[SHIFTED:.*]] = torch.aten.mul.int %[[N]], %int4
# CHECK: return %[[MOD]], %[[ABS]], %[[ROUND]], %[[LESS]], %[[ITE]], %[[POWER]], %[[SHIFTED]]
