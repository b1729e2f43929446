# RUN: %PYTHON %s | FileCheck %s
"""Weights are resources named after the parameter, shared where storage is shared; a single value is a splat."""

import torch
from torch.export import export

from fx_importer import FxImporter


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3, bias=False)
        self.tied = torch.nn.Linear(3, 3, bias=False)
        self.tied.weight = self.first.weight
        self.narrow = torch.nn.Parameter(torch.arange(4).to(torch.bfloat16))
        self.ones = torch.nn.Parameter(torch.ones(2, 100))
        self.strided = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
        self.register_buffer("kept", torch.arange(3))
        self.register_buffer("shown", torch.tensor([True, False, True]), persistent=False)
        self.register_buffer("one", torch.tensor(7, dtype=torch.uint8))
        self.register_buffer("empty", torch.zeros(0, 2))
        self.plain = torch.tensor([1.0, 2.0])

    def forward(self, x):
        y = self.tied(self.first(x))
        return y, self.narrow, self.ones, self.strided, self.kept, self.shown, self.one, self.empty, self.plain


importer = FxImporter()
importer.import_frozen_program(export(Model(), (torch.ones(1, 3),)).run_decompositions({}))
print(importer.module)

# CHECK: torch.vtensor.literal(dense_resource<narrow> : tensor<4xbf16>) : !torch.vtensor<[4],bf16>
# CHECK: torch.vtensor.literal(dense<1.000000e+00> : tensor<2x100xf32>)
# CHECK: torch.vtensor.literal(dense_resource<strided> : tensor<3x2xf32>)
# CHECK: %[[W:.*]] = torch.vtensor.literal(dense_resource<{{first|tied}}.weight> : tensor<3x3xf32>)
# CHECK-NOT: .weight>
# CHECK: torch.vtensor.literal(dense_resource<kept> : tensor<3xsi64>)
# CHECK: torch.vtensor.literal(dense<[true, false, true]> : tensor<3xi1>)
# CHECK: torch.vtensor.literal(dense<7> : tensor<ui8>)
# CHECK: torch.vtensor.literal(dense<> : tensor<0x2xf32>)
# CHECK: torch.vtensor.literal(dense_resource<plain> : tensor<2xf32>)
# CHECK: torch.aten.linear %arg0, %[[W]]
# CHECK: torch.aten.linear %{{.*}}, %[[W]]
# CHECK: strided: "0x04000000000000000000404000{{.*}}"
