# RUN: %PYTHON %s | FileCheck %s
"""A keyword that is both an option and a parameter of the model, and one that is neither."""

import torch

import fx_importer


class Model(torch.nn.Module):
    def forward(self, x, strict=1.0):
        return x * strict


def attempt(**keywords):
    try:
        print(fx_importer.export_and_import(Model(), torch.zeros(2), **keywords))
    except fx_importer.UsageError as error:
        print(error)


attempt(strict=True)
# CHECK: 'strict' is both an option of fx_importer and a parameter of the model
# CHECK-SAME: kwargs={'strict': ...}

attempt(verbos=True)
# CHECK: 'verbos' is neither an option nor a parameter of the model; did you mean 'verbose'?

attempt(kwargs={"strict": 2.0})
# CHECK: torch.aten.mul
