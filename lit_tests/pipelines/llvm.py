# RUN: %PYTHON %s | FileCheck %s
"""LLVM: linalg on tensors becomes functions on pointers, under the name that the execution engine calls."""

import torch

from fx_importer import export_and_import
from fx_importer.pipelines import LLVM, run_stage


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.exp(x) @ x


module = export_and_import(Model(), torch.ones(3, 3), output_type="linalg")
for stage in LLVM.stages:
    run_stage(stage, module)
print(module)

# CHECK-NOT: {{linalg|tensor|memref|func\.func}}
# CHECK: llvm.func internal @main({{.*}}) attributes
# CHECK: llvm.call @fx_importer_vector_exp
# CHECK-NOT: {{linalg|tensor|memref|func\.func}}
