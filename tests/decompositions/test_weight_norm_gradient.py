"""The gradient of weight normalization against eager's, by axis."""

import pytest
import torch
from torch.testing import assert_close

from fx_importer import lower
from fx_importer.decompositions.backward.weight_norm_backward import weight_norm_backward

aten = torch.ops.aten


@pytest.mark.parametrize("dim", [0, 2])
def test_weight_norm_backward_equals_eager(dim: int) -> None:
    v, w = torch.randn(4, 3, 5), torch.randn(4, 3, 5)
    g = torch.rand(v.sum([axis for axis in range(3) if axis != dim], keepdim=True).shape)
    _, norms = aten._weight_norm_interface(v, g, dim)
    expected = aten._weight_norm_interface_backward(w, v, g, norms, dim)
    assert_close(weight_norm_backward(w, v, g, norms, dim), expected)


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_gradients_of_a_normalized_convolution_equal_eager(output_type: str) -> None:
    model = torch.nn.Sequential(torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(2, 3, 2), dim=2))

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x).square().sum()

    loss, x = Loss(), torch.randn(1, 2, 4)
    caller = lower(loss, x, output_type=output_type, gradients=True).caller()
    caller(x)
    loss(x).backward()
    for name, parameter in loss.named_parameters():
        assert_close(caller.gradients[name], parameter.grad, rtol=1e-4, atol=1e-5)
