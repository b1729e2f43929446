# RUN: %PYTHON %s | FileCheck %s
"""A location is the module's qualified name around the user's call stack."""

import torch
from torch.export import export

from fx_importer import FxImporter


class Inner(torch.nn.Module):
    def forward(self, x):
        return x.relu()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Inner()])

    def forward(self, x):
        y = self.blocks[0](x)
        return y.tanh()


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(2),)))
print(importer.module.operation.get_asm(enable_debug_info=True, use_local_scope=True))

# CHECK: %arg0: !torch.vtensor<[2],f32> {{.*}} loc("x")
# CHECK: torch.aten.relu {{.*}} loc("blocks.0"(callsite("{{.*}}locations.py":12:0 at "{{.*}}locations.py":21:0)))
# CHECK: torch.aten.tanh {{.*}} loc("{{.*}}locations.py":22:0)
