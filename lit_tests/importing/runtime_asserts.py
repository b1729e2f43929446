# RUN: %PYTHON %s | FileCheck %s
"""Assertions about items are assumptions; with runtime_asserts, all are torch.runtime.assert, also those of inputs."""

import torch
from torch.export import Dim

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def forward(self, x, n):
        rows = n.item()
        torch._check(rows >= 2)
        torch._check(rows <= 16)
        return x * 2, torch.zeros(rows)


for runtime_asserts in (False, True):
    module = export_and_import(
        Model(),
        torch.ones(6),
        torch.tensor(3),
        dynamic_shapes=({0: Dim("batch", min=2, max=64)}, None),
        import_symbolic_shape_expressions=True,
        runtime_asserts=runtime_asserts,
    )
    print(module)

# CHECK-LABEL: func.func @main
# CHECK-DAG: torch.symbolic_int "s{{.*}}" {min_val = 2, max_val = 64}
# CHECK-DAG: %[[U:.*]] = torch.symbolic_int "u0" {min_val = 2, max_val = 16}
# CHECK: torch.runtime.assert %{{.*}}, "assumption: `n.item() >= 2, in rows = n.item()` is True
# CHECK: torch.runtime.assert %{{.*}}, "assumption: `n.item() <= 16, in rows = n.item()` is True
# CHECK: torch.bind_symbolic_shape %{{.*}}, [%[[U]]], affine_map<()[s0] -> (s0)>
# CHECK-NOT: assert
# CHECK: return

# CHECK-LABEL: func.func @main
# CHECK: %[[SIZE:.*]] = torch.aten.size.int %arg0, %int0
# CHECK: %[[LEAST:.*]] = torch.aten.ge.int %[[SIZE]], %int2
# CHECK: torch.runtime.assert %[[LEAST]], "size 0 of 'x' is less than 2"
# CHECK: %[[MOST:.*]] = torch.aten.le.int %[[SIZE]], %int64
# CHECK: torch.runtime.assert %[[MOST]], "size 0 of 'x' is greater than 64"
# CHECK: %[[N:.*]] = torch.aten.item %arg1
# CHECK: %[[ENOUGH:.*]] = torch.aten.ge.int %[[N]], %int2
# CHECK: torch.runtime.assert %[[ENOUGH]]
# CHECK: torch.aten.le.int %[[N]], %int16
# CHECK: torch.runtime.assert
