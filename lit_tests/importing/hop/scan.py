# RUN: %PYTHON %s | FileCheck %s
"""scan becomes a counted torch.prim.Loop that carries the state and the stacked results; its length may be dynamic."""

import torch
from torch._higher_order_ops.scan import scan
from torch.export import Dim, export

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def forward(self, x):
        return scan(lambda state, row: (state + row, state * row), x[0], x)


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(3, 4),)))
shapes = ({0: Dim("length", min=2)},)
importer.import_frozen_program(export(Model(), (torch.ones(3, 4),), dynamic_shapes=shapes), func_name="dynamic")
print(importer.module)

# CHECK-LABEL: @main
# CHECK-DAG: %[[N:.*]] = torch.constant.int 3
# CHECK-DAG: %[[TRUE:.*]] = torch.constant.bool true
# CHECK-DAG: %[[INIT:.*]] = torch.aten.select.int %arg0
# CHECK-DAG: %[[STACK:.*]] = torch.aten.zeros {{.*}} -> !torch.vtensor<[3,4],f32>
# CHECK: %[[R:.*]]:2 = torch.prim.Loop %[[N]], %[[TRUE]], init(%[[INIT]], %[[STACK]]) {
# CHECK: ^bb0(%[[I:.*]]: !torch.int, %[[S:.*]]: !torch.vtensor<[4],f32>, %[[YS:.*]]: !torch.vtensor<[3,4],f32>):
# CHECK: %[[ROW:.*]] = torch.aten.select.int %arg0, %{{.*}}, %[[I]]
# CHECK: %[[NEW:.*]] = torch.aten.add.Tensor %[[S]], %[[ROW]]
# CHECK: %[[Y:.*]] = torch.aten.mul.Tensor %[[S]], %[[ROW]]
# CHECK: %[[Y1:.*]] = torch.aten.unsqueeze %[[Y]]
# CHECK: %[[END:.*]] = torch.aten.add.int %[[I]]
# CHECK: %[[NEXT:.*]] = torch.aten.slice_scatter %[[YS]], %[[Y1]], %{{.*}}, %[[I]], %[[END]]
# CHECK: torch.prim.Loop.condition %[[TRUE]], iter(%[[NEW]], %[[NEXT]] :
# CHECK: return %[[R]]#0, %[[R]]#1

# CHECK-LABEL: @dynamic
# CHECK: torch.aten.size.int %arg0
# CHECK: %[[SIZES:.*]] = torch.prim.ListConstruct %[[N:[0-9]+]], %int4
# CHECK: torch.aten.zeros %[[SIZES]], {{.*}} -> !torch.vtensor<[?,4],f32>
# CHECK: torch.prim.Loop %[[N]],
