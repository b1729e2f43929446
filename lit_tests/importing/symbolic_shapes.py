# RUN: %PYTHON %s | FileCheck %s
"""Symbolic sizes: their ranges, the shapes derived from them, and arithmetic on them."""

import torch
from torch.export import Dim, export

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def forward(self, x):
        batch = x.shape[0]
        return x.reshape(batch * 4), x.new_zeros(batch // 2 + 1), x * (batch / 2), torch.cat([x, x])


importer = FxImporter()
program = export(Model(), (torch.ones(6, 4),), dynamic_shapes=({0: Dim("batch", min=2, max=64)},))
importer.import_frozen_program(program.run_decompositions({}), import_symbolic_shape_expressions=True)
print(importer.module)

# CHECK: func.func @main(%arg0: !torch.vtensor<[?,4],f32>{{[^:>]*}}) -> {{.*}} attributes {torch.assume_strict_symbolic_shapes}
# CHECK: %[[S:.*]] = torch.symbolic_int "{{.*}}" {min_val = 2, max_val = 64} : !torch.int
# CHECK: torch.bind_symbolic_shape %arg0, [%[[S]]], affine_map<()[s0] -> (s0, 4)>
# CHECK: %[[B:.*]] = torch.aten.size.int %arg0, %{{.*}}
# CHECK: torch.aten.mul.int %[[B]], %{{.*}}
# CHECK: torch.bind_symbolic_shape %{{.*}}, [%[[S]]], affine_map<()[s0] -> (s0 * 4)>
# CHECK: torch.aten.floordiv.int %[[B]]
# CHECK: torch.bind_symbolic_shape %{{.*}}, [%[[S]]], affine_map<()[s0] -> (s0 floordiv 2 + 1)>
# CHECK: torch.aten.div.float
# CHECK: torch.bind_symbolic_shape %{{.*}}, [%[[S]]], affine_map<()[s0] -> (s0 * 2, 4)>
