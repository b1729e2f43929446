# RUN: %PYTHON %s | FileCheck %s
"""The sum and the quotient of a softmax compute the exponentials themselves, for IREE."""

import torch

from fx_importer import lower
from fx_importer.rewrites.iree.softmax import split_softmaxes

rows = torch.export.Dim("rows")
lowered = lower(lambda x: x.softmax(-1), torch.ones(3, 5), output_type="linalg", dynamic_shapes=({0: rows},))
split_softmaxes(lowered.module.operation)
print(lowered.module)

# CHECK: func.func @main(%[[X:[^:]*]]: tensor<?x5xf32>
# CHECK: arith.maximumf
# CHECK: %[[MAX:.*]] = tensor.expand_shape
# CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[MAX]] :
# CHECK-NOT: linalg.generic
# CHECK: %[[D:.*]] = arith.subf
# CHECK-NEXT: %[[E:.*]] = math.exp %[[D]]
# CHECK-NEXT: arith.addf %[[E]]
# CHECK: linalg.generic {{.*}} ins(%[[X]], %[[MAX]], %[[SUM]] :
# CHECK: %[[D:.*]] = arith.subf
# CHECK-NEXT: %[[E:.*]] = math.exp %[[D]]
# CHECK-NEXT: arith.divf %[[E]]
# CHECK-NOT: linalg.generic
