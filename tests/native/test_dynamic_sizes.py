"""Native code of programs with dynamic sizes: buffers have sizes of the arguments."""

import pytest
import torch
from torch import nn
from torch.export import Dim, export

from fx_importer import UsageError, lower
from tests.native.c_programs import COMPILER, Program, build_c

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


class Attention(nn.Module):
    """Causal attention of two heads, with a residual connection."""

    def __init__(self):
        super().__init__()
        self.heads, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        """Return as many rows as ``x`` has."""
        batch, steps, width = x.shape
        split = (y.view(batch, steps, 2, 4).transpose(1, 2) for y in self.heads(x).split(width, 2))
        y = nn.functional.scaled_dot_product_attention(*split, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(batch, steps, width))


class Views(nn.Module):
    """Reshapes that merge a dynamic axis with others."""

    def forward(self, x):
        """Return three of them."""
        return (
            x.reshape(-1, 2).softmax(-1),
            x.unsqueeze(1).expand(-1, 3, -1).flatten(0, 1),
            x.mean(0) + x[:, ::2].T.sum(),
        )


class Convolutions(nn.Module):
    """Convolutions in groups, with strides and dilations, over one and two axes; windows of them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1, stride=2)
        self.grouped = nn.Conv2d(4, 8, 3, padding=2, dilation=2, groups=2)
        self.row = nn.Conv1d(8, 3, 3)

    def forward(self, x):
        """Return a matrix for each image, and sums along its rows."""
        y = nn.functional.max_pool2d(self.first(x).relu(), 3, stride=1, padding=1)
        y = nn.functional.avg_pool2d(self.grouped(y), 2)
        y = self.row(y.flatten(2))
        return y, y.cumsum(2)


class Elements(nn.Module):
    """Convolutions of integers and of floats of 16 bits, and transposed ones."""

    def __init__(self):
        super().__init__()
        self.narrow = nn.Conv2d(2, 3, 3, padding=1, stride=2).half()
        self.first, self.grouped = nn.ConvTranspose2d(2, 4, 3, stride=2), nn.ConvTranspose2d(4, 6, 3, 2, 3, groups=2)
        self.row = nn.ConvTranspose1d(2, 3, 3, stride=2, output_padding=1, padding=1)
        self.weight = nn.Buffer(torch.arange(36, dtype=torch.int32).view(2, 2, 3, 3) - 18)

    def forward(self, x):
        """Return the result of each."""
        return (
            self.narrow(x.half()).float(),
            nn.functional.conv2d((x * 8).int(), self.weight, padding=1),
            self.grouped(self.first(x)),
            self.row(x.flatten(2)),
        )


_BATCH = Dim("batch", min=1, max=64)
_MODELS = {
    "attention": (Attention(), (5, 8), {0: _BATCH, 1: Dim("steps", min=2, max=9)}),
    "convolutions": (Convolutions(), (2, 8, 8), {0: _BATCH}),
    "elements": (Elements(), (2, 4, 4), {0: _BATCH}),
    "images": (
        nn.Conv2d(1, 2, 3, padding=(1, 0), stride=2),
        (1, 8, 6),
        {0: _BATCH, 2: Dim("height", min=5, max=16), 3: Dim("width", min=5, max=16)},
    ),
    "linear": (nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3), nn.Softmax(-1)), (6,), {0: _BATCH}),
    "views": (Views(), (4,), {0: _BATCH}),
    "pooled": (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(3)), (3, 4, 4), {0: _BATCH}),
}


_ROWS = [
    (name, kind)
    for name in _MODELS
    for kind in ("tosa", "stablehlo")
    if kind != "tosa" or name not in ("convolutions", "elements")
]


@pytest.mark.parametrize("name, output_type", _ROWS)
def test_sizes_are_traced_to_the_arguments(name, output_type, tmp_path):
    model, shape, sizes = _MODELS[name]
    program = export(model.eval(), (torch.randn(3, *shape),), dynamic_shapes=(sizes,))
    call = Program(*build_c(lower(program, output_type=output_type), tmp_path)).call
    for batch in (1, 4):
        x = torch.randn(batch, *shape)
        expected = model(x)
        status, results = call(x)
        assert status == 0
        for result, correct in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
            tolerance = 1e-3 if name == "elements" else 1e-5
            torch.testing.assert_close(result, correct, rtol=1e-4, atol=tolerance)


def test_sizes_that_depend_on_elements_are_refused(tmp_path):
    class Chosen(nn.Module):
        def forward(self, x, n):
            length = n.item()
            torch._check(length >= 0)
            return torch.zeros(length).sum() + x

    lowered = lower(export(Chosen(), (torch.randn(1), torch.tensor(3))), output_type="linalg-on-tensors")
    with pytest.raises(
        UsageError, match=r"test_dynamic_sizes.py:\d+. .*sizes have to follow from the sizes of the inputs"
    ):
        lowered.build(tmp_path / "net", kind="c")
