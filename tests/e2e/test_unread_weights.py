"""Buffers and parameters that a program does not read, of kinds that output types or torch.export lack."""

import pytest
import torch

from fx_importer import UnsupportedProgramError, UsageError, lower

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch.quantize_per_channel:UserWarning")

X = torch.randn(4, 3)
ODD = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "complex128": lambda: torch.ones(3, dtype=torch.complex128),
    "complex32": lambda: torch.zeros(3, dtype=torch.complex32),
    "float64": lambda: torch.ones(3, dtype=torch.float64),
    "qint8": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "bits8": lambda: torch.zeros(3, dtype=torch.uint8).view(torch.bits8),
    "text": lambda: "a name",
}


class _Odd(torch.nn.Module):
    def __init__(self, odd, read=None):
        super().__init__()
        self.linear, self.read = torch.nn.Linear(3, 2), read
        if isinstance(odd, torch.Tensor):
            self.register_buffer("odd", odd)
            self.weight = torch.nn.Parameter(odd.detach(), requires_grad=False)
        else:
            self.odd = odd

    def forward(self, x):
        return self.linear(x if self.read is None else x + self.read(self.odd).sum())


@pytest.mark.parametrize("output_type", ["tosa", "stablehlo"])
@pytest.mark.parametrize("kind", ODD)
def test_unread(kind: str, output_type: str):
    odd = ODD[kind]()
    model = _Odd(odd)
    torch.testing.assert_close(lower(model, X, output_type=output_type).run(X), model(X))
    assert model.odd is odd


def test_read():
    with pytest.raises(UnsupportedProgramError, match=r"stored as torch.sparse_coo, and TOSA has dense tensors only"):
        lower(_Odd(ODD["sparse"](), torch.Tensor.to_dense), X, output_type="tosa")
    with pytest.raises(UsageError, match=r"no tensors of quantized dtypes: 'weight' \(torch.qint8\), 'odd'"):
        lower(_Odd(ODD["qint8"](), torch.Tensor.int_repr), X, output_type="linalg")
