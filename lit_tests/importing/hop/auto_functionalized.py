# RUN: %PYTHON %s | FileCheck %s
"""An operator that mutates its arguments returns, after its results, the new value of each mutated tensor."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fx_importer import stateless_fx_import

library = torch.library.Library("lit_v1", "FRAGMENT")
library.define("update(Tensor(a!) x, Tensor(b!)[] others, Tensor(c!)? maybe, float by) -> Tensor")
library.impl("update", lambda x, others, maybe, by: x.add_(by).clone(), "CompositeExplicitAutograd")


def model(x, y):
    result, x, others, _ = torch.ops.higher_order.auto_functionalized(
        torch.ops.lit_v1.update.default, x=x, others=[y, y * 2], maybe=None, by=3.0
    )
    return result + x + others[1]


print(stateless_fx_import(make_fx(model, tracing_mode="fake")(torch.ones(3), torch.ones(3))))

# CHECK: %[[Y2:.*]] = torch.aten.mul.Scalar %arg1
# CHECK: %[[OTHERS:.*]] = torch.prim.ListConstruct %arg1, %[[Y2]]
# CHECK: %[[NONE:.*]] = torch.constant.none
# CHECK: %[[R:.*]]:4 = torch.operator "torch.lit_v1.update"(%arg0, %[[OTHERS]], %[[NONE]], %float3{{.*}}) :
# CHECK: %[[SUM:.*]] = torch.aten.add.Tensor %[[R]]#0, %[[R]]#1
# CHECK: torch.aten.add.Tensor %[[SUM]], %[[R]]#3
