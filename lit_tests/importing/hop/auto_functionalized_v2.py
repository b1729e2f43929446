# RUN: %PYTHON %s | FileCheck %s
"""Views that an operator mutates are read from their bases and written back; overlapping views are an error."""

import torch

from fx_importer import UnsupportedProgramError, export_and_import


@torch.library.custom_op("lit_v2::update", mutates_args={"x", "others"})
def update(x: torch.Tensor | None, others: list[torch.Tensor], by: float) -> None:
    pass


@update.register_fake
def _(x, others, by):
    return None


class Whole(torch.nn.Module):
    def forward(self, x, y):
        x, y = x.clone(), y.clone()
        torch.ops.lit_v2.update(x, [y], 2.0)
        return x + y


class Views(torch.nn.Module):
    def forward(self, x, y):
        x = x.clone()
        torch.ops.lit_v2.update(x[0], [x[1:3], x[3, ::2]], 2.0)
        return x


class Shared(torch.nn.Module):
    def forward(self, x, y):
        x = x.clone()
        torch.ops.lit_v2.update(None, [x[1:3], x[:2]], 2.0)
        return x


x = torch.ones(4, 4)
for model in (Whole(), Views(), Shared()):
    try:
        print(export_and_import(model, x, x))
    except UnsupportedProgramError as error:
        print(error)

# CHECK-LABEL: func.func @main
# CHECK: %[[LIST:.*]] = torch.prim.ListConstruct %arg1
# CHECK: %[[NEW:.*]]:2 = torch.operator "torch.lit_v2.update"(%arg0, %[[LIST]], %
# CHECK: torch.aten.add.Tensor %[[NEW]]#0, %[[NEW]]#1

# CHECK-LABEL: func.func @main
# CHECK: %[[POSITIONS:.*]] = torch.vtensor.literal(dense<[0, 1, 2, 3]>
# CHECK: %[[ROW:.*]] = torch.aten.index.Tensor
# CHECK: %[[SLICE:.*]] = torch.aten.slice.Tensor %arg0
# CHECK: torch.vtensor.literal(dense<[12, 14]>
# CHECK: %[[STEPS:.*]] = torch.aten.index.Tensor
# CHECK: %[[LIST:.*]] = torch.prim.ListConstruct %[[SLICE]], %[[STEPS]]
# CHECK: %[[NEW:.*]]:3 = torch.operator "torch.lit_v2.update"(%[[ROW]], %[[LIST]], %
# CHECK: torch.aten.index_put %{{.*}}, %{{.*}}, %[[NEW]]#0
# CHECK: torch.aten.slice_scatter %{{.*}}, %[[NEW]]#1
# CHECK: torch.aten.index_put %{{.*}}, %{{.*}}, %[[NEW]]#2

# CHECK: two arguments that it writes to may share memory
# CHECK: torch.ops.lit_v2.update(None, [x[1:3], x[:2]], 2.0)
