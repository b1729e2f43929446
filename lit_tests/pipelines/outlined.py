# RUN: %PYTHON %s | FileCheck %s
"""An unsupported operator becomes a call of a declared function, whose attribute describes the operator."""

import torch

from fx_importer import export_and_import


@torch.library.custom_op("lit_outlined::twice", mutates_args=())
def twice(x: torch.Tensor, scale: float, axes: list[int] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    return x * scale, x.sum(axes)


@twice.register_fake
def _(x, scale, axes=None):
    return torch.empty_like(x), x.sum(axes)


def model(x):
    a, b = twice(torch.tanh(x), 3.0, [1])
    return twice(a, 3.0, [1])[0] + twice(a, 4.0, [1])[0], b


for output_type in ("linalg-on-tensors", "tosa", "stablehlo"):
    print(f"--- {output_type}")
    dynamic = ({0: torch.export.Dim("rows", min=2, max=64)},)
    print(
        export_and_import(
            model, torch.ones(2, 3), output_type=output_type, unsupported="outline", dynamic_shapes=dynamic
        )
    )

# CHECK-LABEL: --- linalg-on-tensors
# CHECK: func.func @main(
# CHECK: math.tanh
# CHECK: %[[A:.*]]:2 = call @[[FIRST:fallback_lit_outlined_twice_default_0]](%{{.*}}) : (tensor<?x3xf32>) -> (tensor<?x3xf32>, tensor<?xf32>)
# CHECK: call @[[FIRST]](%[[A]]#0)
# CHECK: call @[[SECOND:fallback_lit_outlined_twice_default_1]](%[[A]]#0)
# CHECK: arith.addf
# CHECK: func.func private @[[FIRST]](tensor<?x3xf32>) -> (tensor<?x3xf32>, tensor<?xf32>) attributes {fx_importer.stub = "{\22operator\22: \22lit_outlined.twice.default\22, \22arguments\22: [{\22argument\22: 0}, 3.0, [1]]
# CHECK-NEXT: func.func private @[[SECOND]]({{.*}} 4.0, [1]]
# CHECK-LABEL: --- tosa
# CHECK: tosa.tanh
# CHECK: call @fallback_lit_outlined_twice_default_0
# CHECK: tosa.add
# CHECK: func.func private @fallback_lit_outlined_twice_default_1
# CHECK-LABEL: --- stablehlo
# CHECK: stablehlo.tanh
# CHECK: call @fallback_lit_outlined_twice_default_0
# CHECK: stablehlo.add
# CHECK: func.func private @fallback_lit_outlined_twice_default_1
