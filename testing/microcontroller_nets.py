"""Networks for microcontrollers, quantized to int8 with integer inputs and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

import fx_importer
from fx_importer import Lowered
from testing.quantized_nets import KeywordSpotting, anomaly_detector, person_detector


class _Gru(nn.Module):
    """A GRU over 16 steps, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.out = nn.GRU(10, 32, batch_first=True), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.gru(x)[0][:, -1])


NETS: Mapping[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "DS-CNN": lambda: (KeywordSpotting(), torch.randn(1, 1, 49, 10)),
    "autoencoder": lambda: (anomaly_detector(), torch.randn(1, 640)),
    "MobileNetV2 0.35": lambda: (person_detector(), torch.randn(1, 3, 96, 96)),
    "GRU": lambda: (_Gru(), torch.randn(1, 16, 10)),
    "linear": lambda: (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(1, 8)),
}


def lower_to_int8(net: str, output_type: str = "tosa") -> tuple[Lowered, Tensor]:
    """Return a network on integers, of random weights, and its input of int8."""
    torch.manual_seed(0)
    model, x = NETS[net]()
    with torch.no_grad():  # statistics for batch normalization
        model.train()(torch.cat([x, x.flip(-1), x * 0.5, -x]))
    quantized = fx_importer.quantize(torch.export.export(model.eval(), (x,)), [x, x.flip(-1)], integer_io=True)
    scale, zero_point = quantized.meta["input_scales"][0]
    integers = (x / scale + zero_point).round().clamp(-128, 127).to(torch.int8)
    return fx_importer.lower(quantized, integers, output_type=output_type, quantized="integer"), integers
