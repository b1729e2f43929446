# RUN: %PYTHON %s | FileCheck %s
"""Large matmuls call CBLAS, a weight as it is; small ones, those of integers and of few rows are loops."""

import torch

from fx_importer import lower
from fx_importer.native.buffers import to_buffers
from fx_importer.native.cblas import Cblas
from fx_importer.native.targets import target_named


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.large, self.small = torch.nn.Linear(128, 96), torch.nn.Linear(96, 4)

    def forward(self, x, y):
        return self.small(self.large(x)), self.large(x[:3]), y @ y.mT


args = torch.randn(64, 128), torch.ones(64, 64, dtype=torch.int64)
lowered = lower(Model(), *args, output_type="linalg-on-tensors")
print(to_buffers(lowered.linked, "main", target_named("x86-64-v2"), cblas=Cblas("openblas", "scipy_cblas_sgemm")))

# CHECK: func.func private @scipy_cblas_sgemm(i32, i32, i32, i64, i64, i64, f32, memref<1xf32, strided<[1], offset: ?>>, i64
# CHECK-LABEL: func.func public @main
# CHECK-DAG: [[ROWS:%.*]] = arith.constant 101 : i32
# CHECK-DAG: [[AS_IT_IS:%.*]] = arith.constant 111 : i32
# CHECK-DAG: [[TRANSPOSED:%.*]] = arith.constant 112 : i32
# CHECK: call @scipy_cblas_sgemm([[ROWS]], [[AS_IT_IS]], [[TRANSPOSED]],
# CHECK-NOT: call @scipy_cblas_sgemm
