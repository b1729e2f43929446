"""`quantize`: networks by torchao's PT2E, lowered to integers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fx_importer import UsageError, lower, quantize
from fx_importer.errors import NotInstalledError
from fx_importer.quantization import WITHOUT_RESIZE
from tests.engines.test_engine_table import needs_tosa
from tests.quantization.quantize_operators import PRO_INT


class Block(nn.Module):
    """A residual block behind a convolution, normalization that follows a concatenation, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.depthwise, self.second = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(16)
        self.classifier = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(self.stem(x)))
        y = nn.functional.hardswish(self.depthwise(x))
        x = torch.relu(self.second(torch.cat([x, y + x * torch.sigmoid(y)], 1)))
        return self.classifier(nn.functional.adaptive_avg_pool2d(nn.functional.max_pool2d(x, 2), 1).flatten(1))


@needs_tosa
def test_network_in_one_call() -> None:
    torch.manual_seed(0)
    model, inputs = Block().eval(), [torch.randn(2, 3, 16, 16) for _ in range(3)]
    expected = model(inputs[0]).detach()
    quantized = quantize(model, inputs, integer_io=True, observer="minmax")
    assert torch.equal(model(inputs[0]), expected)
    ((scale, zero_point),) = quantized.meta["input_scales"]
    x = (inputs[0] / scale + zero_point).round().clamp(-128, 127).to(torch.int8)
    lowered = lower(quantized, x, output_type="tosa", quantized="integer", tosa_target=PRO_INT)
    assert lowered.trace.stages[0].remarks == ["quantized: 14 of 14 operators are integer"]
    assert lowered.verify(x, backends=["tosa_reference"], rtol=0, atol=0)
    ((scale, zero_point),) = quantized.meta["result_scales"]
    error = (lowered.run(x).float() - zero_point) * scale - expected
    assert error.norm() < 0.05 * expected.norm()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        q, k, v = (each.reshape(2, 6, 2, 8).transpose(1, 2) for each in self.project(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.out(y.transpose(1, 2).reshape(2, 6, 16))


@pytest.mark.slow_rows("^False-")
@pytest.mark.parametrize("masked, causal, integer", [(False, False, 16), (True, False, 15), (False, True, 17)])
def test_attention(masked: bool, causal: bool, integer: int) -> None:
    torch.manual_seed(0)
    mask = torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf")) if masked else None
    given = torch.randn(2, 6, 16), mask, causal
    model = Attention()
    quantized = quantize(model, [given], observer="minmax")
    lowered = lower(quantized, *given, output_type="linalg", quantized="integer")
    said = lowered.trace.stages[0].remarks[0].split()
    assert lowered.verify(*given, backends=["jit"], rtol=0, atol=1e-6)
    expected = model(*given)
    assert (lowered.run(*given) - expected).norm() < 0.05 * expected.norm()
    assert int(said[1]) == integer, lowered.trace.stages[0].remarks


class Resized(nn.Module):
    """Resizes to twice the size, and to one and a half."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.stem(x)
        sizes = ((12, 12), (9, 9))
        return tuple(
            nn.functional.interpolate(x, size, mode=mode) for size in sizes for mode in ("bilinear", "nearest")
        )


@needs_tosa
def test_only_resizes_by_other_factors_are_left_without_resize() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 8, 8)
    quantized = quantize(Resized().eval(), [x])
    for lowerings, resizes in (((), 4), (WITHOUT_RESIZE, 2)):
        lowered = lower(quantized, x, output_type="tosa", quantized="integer", lowerings=lowerings)
        assert str(lowered.module).count("tosa.resize") == resizes
        assert lowered.verify(x, rtol=0, atol=0)


def test_values_that_are_not_finite() -> None:
    inputs = [torch.rand(3, 3) + 1, torch.zeros(3, 3)]
    with pytest.raises(UsageError, match="calibration input 1: the value of log .* is not finite"):
        quantize(lambda x: torch.log(x) @ x, inputs)
    with pytest.raises(UsageError, match="observer is 'histogram' or 'minmax', and not 'mean'"):
        quantize(torch.relu, inputs, observer="mean")


def test_without_torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotInstalledError, match="fx-importer\\[quantize\\]"):
        quantize(torch.relu, [torch.ones(2)])


class Sequence(nn.Module):
    """Two recurrent layers, one of both directions, with an RMS norm in its formula."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(6, 5, bidirectional=True, batch_first=True), nn.GRU(10, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x, _ = self.lstm(x)
        _, x = self.gru(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        return x


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The tensor attributes")  # torch.export's, of recurrent layers
def test_recurrent_layers() -> None:
    torch.manual_seed(0)
    model, x = Sequence().eval(), torch.randn(2, 2, 6)
    quantized = quantize(model, [x], observer="minmax")
    lowered = lower(quantized, x, output_type="linalg", quantized="integer")
    summary, *floats = lowered.trace.stages[0].remarks
    assert not floats, floats
    assert int(summary.split()[1]) > 40
    assert lowered.verify(x, backends=["jit"], rtol=0, atol=0)
    expected = model(x)
    assert (lowered.run(x) - expected).norm() < 0.05 * expected.norm()


class Steps(nn.Module):
    """A cell, in a loop over steps."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state: Any = None
        results: list[Tensor] = []
        for step in x.unbind(1):
            state = self.cell(step, state)
            results.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(results, 1)


@pytest.mark.slow_rows("^(gru|rnn|relu)$")
@pytest.mark.parametrize(
    "cell",
    [nn.LSTMCell(6, 5), nn.GRUCell(6, 5, bias=False), nn.RNNCell(6, 5), nn.RNNCell(6, 5, nonlinearity="relu")],
    ids=["lstm", "gru", "rnn", "relu"],
)
def test_recurrent_cells(cell: nn.RNNCellBase) -> None:
    torch.manual_seed(0)
    model, x = Steps(cell).eval(), torch.randn(2, 3, 6)
    lowered = lower(quantize(model, [x]), x, output_type="linalg", quantized="integer")
    summary, *floats = lowered.trace.stages[0].remarks
    assert not floats, floats
    assert int(summary.split()[1]) > 10
    expected = model(x)
    assert (lowered.run(x) - expected).norm() < 0.05 * expected.norm()


class Both(nn.Module):
    """An operand, its positive part, and both clamped, in one tensor of one scale."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return torch.cat([y, y.relu(), y.clamp(-0.25, 0.5)], 1)


@needs_tosa
@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_clamps_in_the_scale_of_their_operand(activations: str) -> None:
    torch.manual_seed(0)
    images = [torch.randn(1, 2, 4, 4) for _ in range(2)]
    quantized = quantize(Both().eval(), images, activations=activations)
    tosa, linalg = (
        lower(quantized, images[0], output_type=each, quantized="integer") for each in ("tosa", "linalg-on-tensors")
    )
    assert tosa.verify(images[0], backends=["tosa_reference"], rtol=0, atol=0)
    assert torch.equal(tosa.run(images[0]), linalg.run(images[0]))


class Means(nn.Module):
    """A table of a tensor of rank 0, and one with its difference from others."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean()
        return (x - (2 * mean).sigmoid()).tanh()


@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_tables_of_rank_0(activations: str) -> None:
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    lowered = lower(quantize(Means(), [x], activations=activations), x, output_type="linalg", quantized="integer")
    assert (lowered.run(x) - Means()(x)).abs().max() < 0.05
