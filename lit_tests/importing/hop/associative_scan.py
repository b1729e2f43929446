# RUN: %PYTHON %s | FileCheck %s
"""associative_scan becomes a counted torch.prim.Loop from the second element on; the first is a result already."""

import torch
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch.export import export

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def forward(self, a, b):
        return associative_scan_op(lambda a0, b0, a1, b1: [a0 * a1, b0 * a1 + b1], [a, b], ())


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(3, 4), torch.ones(3, 4))))
print(importer.module)

# CHECK: %[[A0:.*]] = torch.aten.select.int %arg0, %int0, %int0
# CHECK: %[[B0:.*]] = torch.aten.select.int %arg1, %int0, %int0
# CHECK: %[[R:.*]]:4 = torch.prim.Loop %int2, %true, init(%[[A0]], %[[B0]], %arg0, %arg1) {
# CHECK: ^bb0(%[[I:.*]]: !torch.int,
# CHECK: %[[SECOND:.*]] = torch.aten.add.int %[[I]], %int1
# CHECK: torch.aten.select.int %arg0, %{{.*}}, %[[SECOND]]
# CHECK: torch.aten.slice_scatter
# CHECK: torch.aten.slice_scatter
# CHECK: return %[[R]]#2, %[[R]]#3
