# RUN: %PYTHON %s | FileCheck %s
"""64-bit integers in TOSA: where they stay, where they become 32-bit, and where that is an error."""

import warnings

import torch

from fx_importer import StageFailed, lower
from fx_importer.compiler import compile_programs

compile_programs.advisor_for = lambda *_: None  # the errors suggest no options: to try them takes seconds
X = torch.tensor([[1, 2]])


def positions(ids, table):
    return table[ids] + table[torch.arange(2)], ids.clamp(0, 9).float(), ids + ids


def show(**options):
    print(*options.items())
    print(lower(positions, X, torch.ones(10, 3), output_type="tosa", **options).module)


# Arguments and results stay. Values whose range fits are computed in 32 bits; the sum is not.
# CHECK: func.func @main(%[[IDS:.*]]: tensor<1x2xi64>{{.*}}) -> (tensor<1x2x3xf32>{{.*}}, tensor<1x2xf32>{{.*}}, tensor<1x2xi64>
# CHECK: tosa.gather {{.*}}tensor<1x2xi32>)
# Indices that are never negative are not wrapped.
# CHECK-NOT: tosa.select
# CHECK: tosa.gather {{.*}}tensor<1x2xi32>)
# CHECK: %[[LOW:.*]] = tosa.maximum %[[IDS]]
# CHECK: %[[BOTH:.*]] = tosa.minimum %[[LOW]]
# CHECK: %[[SHORT:.*]] = tosa.cast %[[BOTH]] : (tensor<1x2xi64>) -> tensor<1x2xi32>
# CHECK: tosa.cast %[[SHORT]] : (tensor<1x2xi32>) -> tensor<1x2xf32>
# CHECK: tosa.add %[[IDS]], %[[IDS]] : (tensor<1x2xi64>
show()

# CHECK-LABEL: ('narrow_integers', True)
# CHECK: narrow_integers: 'tosa.add' may not fit into 32 bits: -4294967296 to 4294967294
# CHECK-NEXT: at {{.*}}i64_narrowing.py:16: return table[ids]
try:
    show(narrow_integers=True)
except StageFailed as error:
    print(error)

# CHECK-LABEL: ('narrow_integers', True) ('contract', 'warn')
# CHECK: func.func @main(%[[IDS:.*]]: tensor<1x2xi32>{{.*}}) -> (tensor<1x2x3xf32>{{.*}}, tensor<1x2xf32>{{.*}}, tensor<1x2xi32>
# CHECK-NOT: i64>
# CHECK: tosa.add %[[IDS]], %[[IDS]] : (tensor<1x2xi32>
# CHECK: narrow_integers: 'tosa.add' may not fit into 32 bits
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    show(narrow_integers=True, contract="warn")
print(*(each.message for each in caught))

# CHECK-LABEL: ('tosa_target'
# CHECK: not valid TOSA 1.0: 'tosa.const' op illegal: {{.*}}requires any of [int64]
try:
    show(tosa_target="version=1.0 extensions=")
except StageFailed as error:
    print(error)
