# RUN: %PYTHON %s | FileCheck %s --match-full-lines
"""All nodes without a handler are listed, each with its line, including those inside branches."""

import torch
from torch._higher_order_ops.base_hop import BaseHOP

from fx_importer import UnsupportedProgramError, export_and_import


class Twice(BaseHOP):
    def __init__(self):
        super().__init__("lit_twice")


twice = Twice()
sine = torch.fx.symbolic_trace(lambda x: (x.sin(),))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sine = sine

    def forward(self, x):
        (y,) = twice(self.sine, x)
        (z,) = twice(self.sine, y + 1)
        return torch.cond(x.sum() > 0, lambda t: t.relu(), lambda t: twice(self.sine, t)[0], (z,))


try:
    export_and_import(Model(), torch.ones(3))
except UnsupportedProgramError as error:
    print(error)

# CHECK: 3 things in the program cannot be imported:
# CHECK: {{.*}}the higher-order op lit_twice {{.*}}
# CHECK-NEXT: {{.*}}unknown_operators.py:25: (y,) = twice(self.sine, x)
# CHECK: {{.*}}the higher-order op lit_twice {{.*}}
# CHECK-NEXT: {{.*}}unknown_operators.py:26: (z,) = twice(self.sine, y + 1)
# CHECK: {{.*}}the higher-order op lit_twice {{.*}}
# CHECK: {{.*}}unknown_operators.py:27: {{.*}}
