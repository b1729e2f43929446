# RUN: %PYTHON %s | FileCheck %s
"""gelu is one loop in linalg, in float32 for half precision."""

import torch

from fx_importer import export_and_import

print(export_and_import(torch.nn.GELU("tanh"), torch.ones(2, 3).half(), output_type="linalg-on-tensors"))

# CHECK: linalg.generic
# CHECK: arith.extf %{{.*}} : f16 to f32
# CHECK: math.tanh
# CHECK: arith.truncf %{{.*}} : f32 to f16
# CHECK-NOT: linalg.generic
