# RUN: %PYTHON %s | FileCheck %s
"""A dtype that an output type lacks is named, with the tensor, the stage and the line."""

import torch

import fx_importer


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("phases", torch.tensor([1j, 2.0]))
        self.register_buffer("fine", torch.tensor([1j, 2.0], dtype=torch.complex128))

    def forward(self, x):
        return torch.view_as_real(torch.randn_like(x * self.phases))


class Fine(Model):
    def forward(self, x):
        return x * self.fine


class Unknown(torch.nn.Module):
    def forward(self, x):
        return torch.randn_like(x), torch.rand_like(x * x)


class Quantized(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))

    def forward(self, x):
        return x * self.weight.dequantize()


def check(model, x, output_type):
    try:
        fx_importer.lower(model, x, output_type=output_type)
    except fx_importer.FxImporterError as error:
        print(error)


# CHECK: pass 'legalize-dtypes' failed: TOSA cannot hold what the program computes with:
# CHECK-NEXT: {{.*}}: a result of torch.complex128, which TOSA does not have: narrow_floats=True passes its parts in float32
check(Fine(), torch.ones(2), "tosa")
# CHECK: pass 'legalize-dtypes' failed: TOSA cannot hold what the program computes with:
# CHECK-NEXT: randn_like = aten.randn_like.default: it computes with tensors of torch.complex64, and has no emulation by pairs of real tensors
# CHECK-NEXT: at {{.*}}dtypes.py:{{[0-9]+}}: return torch.randn_like(x), torch.rand_like(x * x)
# CHECK-NEXT: rand_like = aten.rand_like.default: it computes with tensors of torch.complex64
check(Unknown(), torch.ones(2, 2, dtype=torch.complex64), "tosa")
# CHECK: pass 'legalize-dtypes' failed: StableHLO cannot hold what the program computes with:
# CHECK-NEXT: randn_like = aten.randn_like.default: it computes with tensors of torch.complex64, which StableHLO can hold, but for which it lacks this operation
# CHECK-NEXT: at {{.*}}dtypes.py:{{.*}}: return torch.view_as_real(torch.randn_like(x * self.phases))
check(Model(), torch.ones(2, dtype=torch.complex64), "stablehlo")
# CHECK: input: torch.float4_e2m1fn_x2 has no element type in the torch dialect: two values share a byte, so give it as `.view(torch.uint8)`
check(torch.nn.Flatten(), torch.ones(2, 2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "raw")
# CHECK: torch.export takes no tensors of quantized dtypes: 'weight' (torch.qint8). Hold their integers
check(Quantized(), torch.ones(2), "raw")
