# RUN: %PYTHON %s | FileCheck %s
"""A failure lists every op that was not lowered, with the model's line, and the command to reproduce it."""

import os
import tempfile

import torch

from fx_importer import StageFailed, lower


class Model(torch.nn.Module):
    def forward(self, x):
        return torch._standard_gamma(x), torch.binomial(torch._standard_gamma(x), x)  # pyright: ignore


with tempfile.TemporaryDirectory() as directory:
    os.environ["FX_IMPORTER_DUMP_DIR"] = directory
    for output_type in ("torch", "linalg", "tosa", "stablehlo"):
        try:
            lower(Model(), torch.ones(2), output_type=output_type)
            print(output_type, "passed")
        except StageFailed as error:
            print(output_type, error)

# An op without a schema in the dialect is kept in the torch dialect.
# CHECK: torch passed
# CHECK: linalg stage 'backend-types' failed: 2 unsupported operators, in 3 calls
# CHECK-NEXT: aten._standard_gamma.default(f32[2], None) -> f32[2], 2 times
# CHECK-NEXT: stage 'backend-types': nothing lowered 'torch.aten._standard_gamma'
# CHECK-NEXT: at {{.*}}unlowered.py:14: return torch._standard_gamma(x), torch.binomial(torch._standard_gamma(x), x)
# CHECK-NEXT: aten.binomial.default(f32[2], f32[2], None) -> f32[2]
# CHECK: try: unsupported='outline': PyTorch computes these operators, as functions that the module declares
# CHECK-NEXT: try: decompositions of your own, extra={torch.ops.aten._standard_gamma.default: function,
# CHECK: reproducer in {{.*}}fx-importer-backend-types-failed-
# CHECK: tosa stage 'backend-types' failed: 2 unsupported operators, in 3 calls
# CHECK: stablehlo stage 'backend-types' failed: 2 unsupported operators, in 3 calls
