# RUN: %PYTHON %s | FileCheck %s
"""linalg reads a copied diagonal by the loop's index, as it does a diagonal that is a view."""

import torch

from fx_importer import export_and_import

print(export_and_import(lambda x: torch.diag(x, 1), torch.ones(4, 6), output_type="linalg"))

# CHECK: linalg.generic
# CHECK: %[[ROW:.*]] = linalg.index 0
# CHECK: %[[COLUMN:.*]] = arith.addi %[[ROW]]
# CHECK: tensor.extract %arg0[%[[ROW]], %[[COLUMN]]]
# CHECK-NOT: linalg.generic
