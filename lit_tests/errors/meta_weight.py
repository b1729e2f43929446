# RUN: %PYTHON %s | FileCheck %s
"""Weights without values are errors, and all of them are listed."""

import torch

import fx_importer


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.scores(x)


with torch.device("meta"):
    model, x = Model(), torch.zeros(1, 2)

try:
    fx_importer.export_and_import(model, x)
except fx_importer.UnsupportedProgramError as error:
    print(error)

# CHECK: 2 things in the program cannot be imported:
# CHECK-NEXT: 'scores.weight': a fake or meta tensor has no values to put into the module: materialize it first
# CHECK-NEXT: 'scores.bias': a fake or meta tensor has no values to put into the module: materialize it first
