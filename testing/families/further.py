"""Further kinds, in plain `torch.nn`: codecs, vocoders, operators, molecules, flows in time, quantized weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from testing.families.vision import Build, seeded


class ResidualCodec(nn.Module):
    """An audio codec: strided convolutions with snakes, residual vector quantization, and the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleList([nn.Conv1d(1, 8, 7, padding=3), nn.Conv1d(8, 8, 8, 4, 2)])
        self.decoder = nn.ModuleList([nn.ConvTranspose1d(8, 8, 8, 4, 2), nn.Conv1d(8, 1, 7, padding=3)])
        self.books = nn.ParameterList(nn.Parameter(seeded(16, 8) / (1 + i)) for i in range(3))
        self.alpha = nn.Parameter(seeded(8, 1).abs() + 0.5)

    def _snake(self, x: Tensor) -> Tensor:
        return x + torch.sin(self.alpha * x).square() / self.alpha

    def forward(self, wave: Tensor) -> tuple[Tensor, Tensor]:
        latent = self.encoder[1](self._snake(self.encoder[0](wave)))
        left, codes = latent.transpose(1, 2), []
        total = torch.zeros_like(left)
        for book in self.books:
            codes.append(torch.cdist(left, book.expand(left.shape[0], -1, -1)).argmin(-1))
            found = F.embedding(codes[-1], book)
            left, total = left - found, total + found
        return self.decoder[1](self._snake(self.decoder[0](total.transpose(1, 2)))), torch.stack(codes, 1)


class FourierVocoder(nn.Module):
    """Vocos: frames of a spectrogram to magnitudes and phases, and an inverse short Fourier transform."""

    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix = nn.Conv1d(10, 24, 7, padding=3), nn.Conv1d(24, 24, 7, padding=3, groups=24)
        self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 2 * 17)
        self.register_buffer("window", torch.hann_window(32))

    def forward(self, mel: Tensor) -> Tensor:
        x = self.embed(mel)
        x = self.head(F.gelu(self.norm((x + self.mix(x)).transpose(1, 2)))).transpose(1, 2)
        size, phase = x.chunk(2, 1)
        spectrum = size.exp().clamp(max=100) * torch.complex(phase.cos(), phase.sin())
        return torch.istft(spectrum, 32, 8, window=self.window, center=True)


class FourierOperator(nn.Module):
    """FNO: a field to a field, by complex weights of its low frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.local, self.out = nn.Linear(3, 8), nn.Conv2d(8, 8, 1), nn.Linear(8, 1)
        self.weights = nn.Parameter(torch.complex(seeded(2, 8, 8, 4, 4), seeded(2, 8, 8, 4, 4)) / 8)

    def forward(self, field: Tensor) -> Tensor:
        x = self.lift(field).permute(0, 3, 1, 2)
        spectrum = torch.fft.rfft2(x)
        out = torch.zeros_like(spectrum)
        out[:, :, :4, :4] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :4, :4], self.weights[0])
        out[:, :, -4:, :4] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -4:, :4], self.weights[1])
        x = F.gelu(torch.fft.irfft2(out, s=x.shape[-2:]) + self.local(x))
        return self.out(x.permute(0, 2, 3, 1))


class Equivariant(nn.Module):
    """EGNN: atoms whose positions and features change with the distances of all pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * 6 + 8, 16), nn.SiLU(), nn.Linear(16, 16), nn.SiLU())
        self.move, self.node = nn.Linear(16, 1, bias=False), nn.Linear(6 + 16, 6)

    def forward(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        n = h.shape[1]
        others = 1.0 - torch.eye(n).unsqueeze(-1)
        for _ in range(2):
            apart = x.unsqueeze(2) - x.unsqueeze(1)
            distance = torch.linalg.vector_norm(apart + 1e-6, dim=-1, keepdim=True)
            radial = torch.exp(-2 * (distance - torch.linspace(0, 4, 8)).square())
            pairs = torch.cat([h.unsqueeze(2).expand(-1, -1, n, -1), h.unsqueeze(1).expand(-1, n, -1, -1), radial], -1)
            message = self.edge(pairs) * others
            x = x + (apart / (distance + 1) * self.move(message)).sum(2) / (n - 1)
            h = h + self.node(torch.cat([h, message.sum(2)], -1))
        return h, x


class FlowMatching(nn.Module):
    """A velocity field, followed from noise by eight steps of a fixed solver (the midpoint's)."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(4 + 8, 32), nn.SiLU(), nn.Linear(32, 4))

    def _velocity(self, x: Tensor, time: Tensor) -> Tensor:
        angles = time * 2.0 ** torch.arange(4)
        return self.field(torch.cat([x, torch.cat([angles.sin(), angles.cos()]).expand(x.shape[0], -1)], -1))

    def forward(self, x: Tensor) -> Tensor:
        for time in torch.linspace(0, 1, 9)[:-1]:
            half = x + self._velocity(x, time) / 16
            x = x + self._velocity(half, time + 1 / 16) / 8
        return x


class SplineNetwork(nn.Module):
    """KAN: a B-spline of each input for each output, by the recursion of Cox and de Boor."""

    knots: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("knots", torch.arange(-3, 9) / 2.5 - 1)
        self.weights = nn.ParameterList([nn.Parameter(seeded(6, 4, 8) / 4), nn.Parameter(seeded(2, 6, 8) / 4)])

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = torch.einsum("bin,oin->bo", self._bases(x.tanh()), weight) + F.silu(x).sum(-1, keepdim=True)
        return x

    def _bases(self, x: Tensor) -> Tensor:
        x, t = x.unsqueeze(-1), self.knots
        bases = ((x >= t[:-1]) & (x < t[1:])).to(x.dtype)
        for k in range(1, 4):
            left = (x - t[: -(k + 1)]) / (t[k:-1] - t[: -(k + 1)])
            right = (t[k + 1 :] - x) / (t[k + 1 :] - t[1:-k])
            bases = left * bases[..., :-1] + right * bases[..., 1:]
        return bases


class Quantized(nn.Module):
    """Linear layers of integers: rows scaled on the way and 8-bit weights, then groups of packed 4-bit weights."""

    first: Tensor
    first_scale: Tensor
    second: Tensor
    second_scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        weight, packed = seeded(24, 16), seeded(8, 3)
        self.register_buffer("first_scale", weight.abs().amax(1) / 127)
        self.register_buffer("first", (weight / self.first_scale[:, None]).round().to(torch.int8))
        self.register_buffer("second", (seeded(8, 12) * 40 + 128).clamp(0, 255).to(torch.uint8))
        self.register_buffer("second_scale", packed.abs() / 8)

    def forward(self, x: Tensor) -> Tensor:
        scale = x.abs().amax(-1, keepdim=True) / 127
        whole = (x / scale).round().clamp(-128, 127).to(torch.int8)
        x = F.relu((whole.to(torch.int32) @ self.first.T.to(torch.int32)).float() * scale * self.first_scale)
        nibbles = torch.stack([self.second & 15, self.second >> 4], -1).flatten(1).to(torch.int8) - 8
        weight = (nibbles.view(8, 3, 8).float() * self.second_scale.unsqueeze(-1)).flatten(1)
        return F.linear(x, weight)


class SparseChoice(nn.Module):
    """TabNet: columns of a table chosen by a sparsemax, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.choose, self.think = nn.BatchNorm1d(10), nn.Linear(8, 10), nn.Linear(10, 16)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(x)
        prior, state = torch.ones_like(x), F.glu(self.think(x))
        total, masks = torch.zeros_like(state), []
        for _ in range(3):
            mask = self._sparsemax(self.choose(state) * prior)
            prior = prior * (1.5 - mask)
            state = F.glu(self.think(mask * x))
            total, masks = total + F.relu(state), [*masks, mask]
        return self.head(total), torch.stack(masks)

    def _sparsemax(self, x: Tensor) -> Tensor:
        ordered = x.sort(-1, descending=True)[0]
        sums, ranks = ordered.cumsum(-1), torch.arange(1, x.shape[-1] + 1)
        support = (1 + ranks * ordered > sums).sum(-1, keepdim=True)
        threshold = (sums.gather(-1, support - 1) - 1) / support
        return F.relu(x - threshold)


class OpticalFlow(nn.Module):
    """RAFT: all pairs of pixels of two frames, and a recurrence that looks up where its flow points."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 8, 3, 2, 1)
        self.update, self.flow = nn.GRUCell(9 + 2, 12), nn.Linear(12, 2)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        f, g = self.features(first), self.features(second)
        n, c, h, w = f.shape
        volume = (f.flatten(2).mT @ g.flatten(2) / c**0.5).view(n * h * w, 1, h, w)
        grid = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy"), -1).float().view(-1, 2)
        near = torch.cartesian_prod(torch.arange(-1, 2), torch.arange(-1, 2)).float()
        flow, state = torch.zeros(n * h * w, 2), torch.zeros(n * h * w, 12)
        for _ in range(3):
            places = (grid.repeat(n, 1) + flow)[:, None] + near
            places = 2 * places / torch.tensor([w - 1, h - 1]) - 1
            found = F.grid_sample(volume, places[:, None], align_corners=True).view(-1, 9)
            state = self.update(torch.cat([found, flow], -1), state)
            flow = flow + self.flow(state)
        return F.interpolate(flow.view(n, h, w, 2).permute(0, 3, 1, 2), scale_factor=2, mode="bicubic")


class FarthestPoints(nn.Module):
    """PointNet++: points far from each other, what is near them, and a maximum over it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows, chosen = torch.arange(x.shape[0]), [torch.zeros(x.shape[0], dtype=torch.int64)]
        distance = torch.full(x.shape[:2], torch.inf)
        for _ in range(3):
            distance = torch.minimum(distance, (x - x[rows, chosen[-1]][:, None]).square().sum(-1))
            chosen.append(distance.argmax(-1))
        index = torch.stack(chosen, 1)
        centres = x.gather(1, index.unsqueeze(-1).expand(-1, -1, 3))
        apart = torch.cdist(centres, x)
        places = torch.where(apart < 1.2, torch.arange(x.shape[1]), x.shape[1]).sort(-1)[0][..., :5]
        places = torch.where(places == x.shape[1], places[..., :1], places)
        near = x[rows[:, None, None], places] - centres.unsqueeze(2)
        return self.inner(near).amax(2), index


FURTHER: dict[str, Build] = {
    "residual_codec": lambda: (ResidualCodec(), (seeded(2, 1, 64),)),
    "fourier_vocoder": lambda: (FourierVocoder(), (seeded(2, 10, 9),)),
    "fourier_operator": lambda: (FourierOperator(), (seeded(2, 16, 16, 3),)),
    "equivariant_graph": lambda: (Equivariant(), (seeded(2, 5, 6), seeded(2, 5, 3))),
    "flow_matching": lambda: (FlowMatching(), (seeded(5, 4),)),
    "spline_network": lambda: (SplineNetwork(), (seeded(5, 4),)),
    "quantized_linear": lambda: (Quantized(), (seeded(5, 16),)),
    "sparse_choice": lambda: (SparseChoice(), (seeded(6, 10),)),
    "optical_flow": lambda: (OpticalFlow(), (seeded(1, 3, 16, 16), seeded(1, 3, 16, 16))),
    "farthest_points": lambda: (FarthestPoints(), (seeded(2, 12, 3),)),
}
