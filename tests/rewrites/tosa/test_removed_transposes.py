"""Transposes around the operations of integer programs: removed where none is left, and the operations follow."""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fx_importer import lower
from fx_importer.results.lowered import Lowered
from tests.engines.test_engine_table import needs_tosa
from tests.quantization.quantize_operators import SATURATES, Weights, dequantize, quantize

pytestmark = SATURATES


class Net(nn.Module):
    """Convolutions, and between them operations that take the first one's result with channels first in PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Weights(8, 3, 3, 3), Weights(4, 12, 1, 1)

    def between(self, x: Tensor) -> Tensor:
        def stored(y: Tensor) -> Tensor:
            return dequantize(quantize(y, 0.03, 5), 0.03, 5)

        x = stored(x + F.hardswish(x))
        x = stored(torch.cat([x, stored(x[:, 2:6] * 0.5)], 1))
        return stored(F.pad(x, (1, 2, 0, 3), value=0.3))

    def forward(self, x: Tensor) -> Tensor:
        x = dequantize(quantize(F.conv2d(dequantize(x), *self.first()), 0.03, 5), 0.03, 5)
        return quantize(F.conv2d(self.between(x), *self.second(), stride=2))


def lowered(model: nn.Module, x: Tensor) -> Lowered:
    torch.manual_seed(0)
    return lower(model, x, output_type="tosa", quantized="integer")


def transposes(found: Lowered) -> list[str]:
    return re.findall(r"tosa.transpose .*perms = array<i32: ([\d, ]+)>", str(found.module))


@needs_tosa
def test_operations_between_convolutions() -> None:
    x = torch.randint(-128, 128, (2, 3, 9, 7), dtype=torch.int8)
    found = lowered(Net(), x)
    assert transposes(found) == ["0, 2, 3, 1", "0, 3, 1, 2"]  # of the input, and of the result
    assert re.search(r"tosa.pad .*tensor<2x7x5x12xi8>.* -> tensor<2x9x7x12xi8>", str(found.module))
    assert found.verify(x, backends=["tosa_reference"], rtol=0, atol=0)


@needs_tosa
def test_sums_and_channels_that_are_read_first() -> None:
    class Pooled(Net):
        def between(self, x: Tensor) -> Tensor:
            sums = dequantize(quantize(x.mean((2, 3), keepdim=True)))
            return dequantize(quantize(torch.cat([x, (sums + x)[:, :4]], 1)))

    class Excited(Net):
        """The mean of each channel, through a convolution and a table, multiplies the channel."""

        def __init__(self) -> None:
            super().__init__()
            self.third = Weights(8, 8, 1, 1)

        def between(self, x: Tensor) -> Tensor:
            mean = dequantize(quantize(x.mean((2, 3), keepdim=True)))
            factor = dequantize(quantize(F.conv2d(mean, *self.third())))
            factor = dequantize(quantize(torch.sigmoid(factor), 1 / 256, -128), 1 / 256, -128)
            x = dequantize(quantize(x * factor))
            return dequantize(quantize(torch.cat([x, x[:, :4]], 1)))

    class Flat(Net):
        def between(self, x: Tensor) -> Tensor:
            x = dequantize(quantize(x + x, 0.06))
            rows = dequantize(quantize(x.reshape(2, -1).softmax(-1), 1 / 256, -128), 1 / 256, -128)
            return dequantize(quantize(torch.cat([x, rows.reshape(x.shape)[:, :4]], 1)))

    x = torch.randint(-128, 128, (2, 3, 9, 7), dtype=torch.int8)
    for model, most in ((Pooled(), 2), (Excited(), 2), (Flat(), 6)):
        found = lowered(model, x)
        assert len(transposes(found)) <= most, transposes(found)
        assert found.verify(x, backends=["tosa_reference"], rtol=0, atol=0)


def test_pads_and_activations_between_float_convolutions() -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3)
            self.scale = nn.Buffer(torch.randn(4, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(F.pad(x, (0, 1, 0, 1)))
            return self.second(F.pad(F.silu(x) * self.scale, (1, 2, 0, 3)))

    torch.manual_seed(0)
    model, x = Padded(), torch.randn(2, 3, 9, 7)
    found = lower(model, x, output_type="tosa")
    assert transposes(found) == ["0, 2, 3, 1", "0, 3, 1, 2"]
    torch.testing.assert_close(found.run(x), model(x), rtol=1e-5, atol=1e-5)
