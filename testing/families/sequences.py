"""Networks for sequences: recurrent, convolutional, attention and what is between, small, in plain `torch.nn`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from testing.families.vision import Build, seeded, whole


class Conformer(nn.Module):
    """Half a feed-forward, attention, a gated depthwise convolution, the other half."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.halves = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.SiLU(), nn.Linear(64, width)) for _ in range(2)
        )
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.point, self.depth = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.batch = nn.BatchNorm1d(width)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        x = x + 0.5 * self.halves[0](x)
        x = x + self.attention(x, x, x, key_padding_mask=padding)[0]
        gated = F.glu(self.point(self.norm(x).transpose(1, 2)), 1)
        x = x + F.silu(self.batch(self.depth(gated))).transpose(1, 2)
        return self.last(x + 0.5 * self.halves[1](x))


class WaveNet(nn.Module):
    """Dilated causal convolutions with gates and skips."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.dilated = nn.ModuleList(nn.Conv1d(16, 32, 2, dilation=2**i) for i in range(4))
        self.skips = nn.ModuleList(nn.Conv1d(16, 16, 1) for _ in range(4))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids).transpose(1, 2)
        total = torch.zeros_like(x)
        for i, (dilated, skip) in enumerate(zip(self.dilated, self.skips, strict=True)):
            value, gate = dilated(F.pad(x, (2**i, 0))).chunk(2, 1)
            out = torch.tanh(value) * torch.sigmoid(gate)
            total = total + skip(out)
            x = x + out
        return total.log_softmax(1)


class ConvLstm(nn.Module):
    """A recurrence of convolutions over time."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Conv2d(2 + 4, 16, 3, padding=1)

    def forward(self, frames: Tensor) -> Tensor:
        h = c = frames.new_zeros(frames.shape[0], 4, *frames.shape[-2:])
        for frame in frames.unbind(1):
            i, f, o, g = self.gates(torch.cat([frame, h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h


class LongConvolution(nn.Module):
    """Hyena: a filter as long as the sequence, by Fourier transforms, between gates."""

    places: Tensor

    def __init__(self, width: int = 8, length: int = 24):
        super().__init__()
        self.project, self.length = nn.Linear(width, 3 * width), length
        self.filter = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, width))
        place = torch.arange(length).unsqueeze(-1) / length
        self.register_buffer("places", torch.cat([place, *(torch.sin(place * k) for k in range(1, 5))], -1))

    def forward(self, x: Tensor) -> Tensor:
        gate, key, value = self.project(x).transpose(1, 2).chunk(3, 1)
        kernel = self.filter(self.places).T * torch.exp(-torch.arange(self.length) / 8.0)
        n = 2 * self.length
        mixed = torch.fft.irfft(torch.fft.rfft(key * value, n=n) * torch.fft.rfft(kernel, n=n), n=n)
        return (mixed[..., : self.length] * gate).transpose(1, 2)


class StateSpace(nn.Module):
    """S4D: a diagonal state-space model, as a convolution with complex exponentials."""

    def __init__(self, width: int = 6, states: int = 4, length: int = 16):
        super().__init__()
        self.length = length
        self.decay, self.frequency = nn.Parameter(seeded(width, states)), nn.Parameter(seeded(width, states))
        self.mix = nn.Parameter(seeded(width, states, 2))
        self.step = nn.Parameter(torch.full((width,), -2.0))

    def forward(self, x: Tensor) -> Tensor:
        step = self.step.exp().unsqueeze(-1)
        pole = torch.complex(-self.decay.exp(), self.frequency) * step
        powers = torch.exp(pole.unsqueeze(-1) * torch.arange(self.length))
        mix = torch.view_as_complex(self.mix) * (torch.exp(pole) - 1)
        kernel = 2 * torch.einsum("wn,wnl->wl", mix, powers).real
        n = 2 * self.length
        found = torch.fft.irfft(torch.fft.rfft(x.transpose(1, 2), n=n) * torch.fft.rfft(kernel, n=n), n=n)
        return found[..., : self.length].transpose(1, 2)


class Rotary(nn.Module):
    """Attention with rotary positions as complex numbers, as the first Llama has them."""

    turns: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(32, 96)
        angles = torch.outer(torch.arange(12.0), 10000.0 ** (-torch.arange(4) / 4))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: Tensor) -> Tensor:
        n, length, _ = x.shape
        q, k, v = self.project(x).reshape(n, length, 3, 4, 8).unbind(2)
        q, k = (self._turned(each).transpose(1, 2) for each in (q, k))
        return F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True).transpose(1, 2).flatten(2)

    def _turned(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns[: x.shape[1], None]).flatten(-2)


class Retention(nn.Module):
    """RetNet: products with a decay by distance, in parallel."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.norm = nn.GroupNorm(2, 16)

    def forward(self, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[1])
        distance = place.unsqueeze(-1) - place
        decay = torch.where(distance >= 0, 0.9**distance, 0.0)
        found = (self.q(x) @ self.k(x).mT * decay) @ self.v(x)
        return self.norm(found.transpose(1, 2)).transpose(1, 2)


class LinearAttention(nn.Module):
    """Running sums of products of keys and values, instead of a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        states = torch.einsum("nli,nlj->nlij", k, v).cumsum(1)
        return torch.einsum("nli,nlij->nlj", q, states) / (q * k.cumsum(1)).sum(-1, keepdim=True)


class SpatialGate(nn.Module):
    """gMLP: half of the channels gate the other half, across positions."""

    def __init__(self, length: int = 10):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(16, 32), nn.Linear(16, 16), nn.LayerNorm(16)
        self.across = nn.Conv1d(length, length, 1)

    def forward(self, x: Tensor) -> Tensor:
        u, v = F.gelu(self.up(x)).chunk(2, -1)
        return x + self.down(u * self.across(self.norm(v)))


class Translator(nn.Module):
    """`nn.Transformer`, with the masks that its layers take."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target, self.head = nn.Embedding(20, 32), nn.Embedding(20, 32), nn.Linear(32, 20)
        self.body = nn.Transformer(32, 4, 2, 2, 64, batch_first=True, norm_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        given = {"tgt_mask": mask, "tgt_is_causal": True, "src_key_padding_mask": source == 0}
        return self.head(self.body(self.source(source), self.target(target), **given))


class Speech(nn.Module):
    """Convolutions, a bidirectional LSTM with projections, a CTC head and its best path."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.body = nn.LSTM(32, 24, num_layers=2, bidirectional=True, proj_size=12, batch_first=True)
        self.head = nn.Linear(24, 11)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.hardtanh(self.front(x.unsqueeze(1)), 0, 20).transpose(1, 2).flatten(2)
        scores = self.head(self.body(x)[0]).log_softmax(-1)
        best = scores.argmax(-1)
        repeated = torch.cat([torch.zeros_like(best[:, :1], dtype=torch.bool), best[:, 1:] == best[:, :-1]], 1)
        return scores, torch.where(repeated | (best == 0), -1, best)


class Spectrogram(nn.Module):
    """Short Fourier transforms, a mel filter bank, decibels."""

    window: Tensor
    filters: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.register_buffer("filters", seeded(33, 10).abs())

    def forward(self, wave: Tensor) -> Tensor:
        found = torch.stft(wave, 64, 32, window=self.window, return_complex=True)
        return 10 * torch.log10((found.abs() ** 2).transpose(1, 2) @ self.filters + 1e-6)


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def temporal() -> nn.Module:
    """A temporal convolutional network with weight norms."""
    norm = nn.utils.parametrizations.weight_norm
    return nn.Sequential(
        *(norm(nn.Conv1d(4, 8, 3, dilation=1)), nn.ReLU(), norm(nn.Conv1d(8, 8, 3, dilation=2)), nn.Mish()),
        *(norm(nn.Conv1d(8, 8, 3, dilation=4)), nn.Softplus(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(8, 3)),
    )


SEQUENCE = seeded(2, 10, 16)
SEQUENCES: dict[str, Build] = {
    "conformer": lambda: (Conformer(), (seeded(2, 9, 32), torch.arange(9) >= torch.tensor([[9], [6]]))),
    "wavenet": lambda: (WaveNet(), (whole(2, 20, below=32),)),
    "temporal_convolutions": lambda: (temporal(), (seeded(2, 4, 30),)),
    "conv_lstm": lambda: (ConvLstm(), (seeded(2, 3, 2, 6, 6),)),
    "hyena": lambda: (LongConvolution(), (seeded(2, 24, 8),)),
    "s4d": lambda: (StateSpace(), (seeded(2, 16, 6),)),
    "complex_rotary": lambda: (Rotary(), (seeded(2, 10, 32),)),
    "retnet": lambda: (Retention(), (SEQUENCE,)),
    "linear_attention": lambda: (LinearAttention(), (SEQUENCE,)),
    "gmlp": lambda: (SpatialGate(), (SEQUENCE,)),
    "transformer_encoder": lambda: (encoder(), (seeded(2, 9, 32),)),
    "transformer": lambda: (Translator(), (whole(2, 9, below=20), whole(2, 7, below=20))),
    "ctc_speech": lambda: (Speech(), (seeded(2, 14, 16),)),
    "spectrogram": lambda: (Spectrogram(), (seeded(2, 320),)),
}
