# RUN: %PYTHON %s | FileCheck %s
"""Operators of torch.library, with arguments and results of every kind: kept in the torch dialect, errors elsewhere."""

import os
import tempfile

import torch

from fx_importer import StageFailed, export_and_import

library = torch.library.Library("lit", "DEF")
library.define(
    "mix(Tensor x, Tensor? mask, Tensor[] xs, Tensor?[] masks, int[] sizes, float[] factors, bool[] axes, str mode, "
    "*, ScalarType? dtype=None, Device? device=None, bool flag=False, Scalar s=2.5, SymInt n=3, str? note=None) -> Tensor"
)
library.impl("mix", lambda x, *args, **kwargs: x.clone(), "CompositeExplicitAutograd")
library.define("parts(Tensor x, int n) -> Tensor[]")
library.impl("parts", lambda x, n: [x.clone() for _ in range(n)], "CompositeExplicitAutograd")
library.define("two(Tensor x) -> (Tensor, Tensor)")
library.impl("two", lambda x: (x.clone(), x.sum()), "CompositeExplicitAutograd")
ops = torch.ops.lit


class Model(torch.nn.Module):
    def forward(self, x, y):
        x = ops.mix(
            x, None, [x, y], [None, y], [1, 2], [1.5], [True, False], "even", dtype=torch.float16, flag=True, s=1
        )
        first, second = ops.parts(x, 2)
        whole, total = ops.two(second)
        return first + whole + total


inputs = torch.ones(2, 3), torch.ones(2, 3)
for output_type in ("raw", "torch"):
    print(output_type, export_and_import(Model(), *inputs, output_type=output_type))
with tempfile.TemporaryDirectory() as directory:
    os.environ["FX_IMPORTER_DUMP_DIR"] = directory
    for output_type in ("linalg", "tosa", "stablehlo"):
        try:
            export_and_import(Model(), *inputs, output_type=output_type)
        except StageFailed as error:
            print(output_type, error)

# CHECK: raw module
# CHECK: torch.operator "torch.lit.mix"(%arg0, %none, {{.*}}) : (!torch.vtensor<[2,3],f32>, !torch.none, !torch.list<vtensor<[2,3],f32>>, !torch.list<optional<vtensor>>, !torch.list<int>, !torch.list<float>, !torch.list<bool>, !torch.str, !torch.int, !torch.none, !torch.bool, !torch.int, !torch.int, !torch.none) -> !torch.vtensor<[2,3],f32>
# CHECK: torch.operator "torch.lit.parts"({{.*}}) : (!torch.vtensor<[2,3],f32>, !torch.int) -> !torch.list<vtensor<[2,3],f32>>
# CHECK: torch.operator "torch.lit.two"({{.*}}) : (!torch.vtensor<[2,3],f32>) -> (!torch.vtensor<[2,3],f32>, !torch.vtensor<[],f32>)
# CHECK: torch module
# CHECK: torch.operator "torch.lit.mix"
# CHECK: linalg stage 'backend-types' failed:
# CHECK-NEXT: lit.mix.default(
# CHECK-NEXT: nothing lowered 'torch.lit.mix'
# CHECK-NEXT: at {{.*}}custom_operators.py:26
# CHECK: nothing lowered 'torch.lit.parts'
# CHECK: nothing lowered 'torch.lit.two'
# CHECK: tosa stage 'backend-types' failed:
# CHECK: stablehlo stage 'backend-types' failed:
