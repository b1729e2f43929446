# RUN: %PYTHON %s | FileCheck %s
"""with_effects becomes the wrapped operator, in program order; tokens are dropped."""

import torch
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

from fx_importer import export_and_import


@torch.library.custom_op("lit::measure", mutates_args=())
def measure(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, x.sum()


@measure.register_fake
def _(x):
    return torch.empty_like(x), x.new_empty(())


_register_effectful_op("lit::measure", _EffectType.ORDERED)


class Model(torch.nn.Module):
    def forward(self, x):
        torch.ops.aten._print("before")
        twice, total = torch.ops.lit.measure(x)
        torch.ops.aten._print("after")
        return twice + total


print(export_and_import(Model(), torch.ones(3)))

# CHECK: func.func @main(%arg0: !torch.vtensor<[3],f32>{{[^%]*}}) -> {{[^,]*}}
# CHECK: %[[BEFORE:.*]] = torch.constant.str "before"
# CHECK: torch.operator "torch.aten._print"(%[[BEFORE]]) : (!torch.str) -> ()
# CHECK: %[[M:.*]]:2 = torch.operator "torch.lit.measure"(%arg0)
# CHECK: %[[AFTER:.*]] = torch.constant.str "after"
# CHECK: torch.operator "torch.aten._print"(%[[AFTER]]) : (!torch.str) -> ()
# CHECK: %[[SUM:.*]] = torch.aten.add.Tensor %[[M]]#0, %[[M]]#1
# CHECK: return %[[SUM]] : !torch.vtensor<[3],f32>
