"""Contractions in vector registers, for the numbers that they compute."""

import pytest
import torch
from torch.export import Dim

from fx_importer import lower
from fx_importer.engines.jit.weight_table import elide_weights
from fx_importer.mlir.module_contents import copy_module
from fx_importer.native.buffers import to_buffers
from fx_importer.native.targets import PRESETS
from fx_importer.process.optional_packages import is_installed
from testing.native_calls import NativeCaller


class Layers(torch.nn.Module):
    """Convolutions, one of them depthwise, matmuls of all kinds, and sizes that no tile divides."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 37, 3, stride=2, padding=1)
        self.depthwise = torch.nn.Conv2d(37, 37, 3, padding=2, dilation=2, groups=37)
        self.second = torch.nn.Conv2d(37, 21, 1)
        self.wide = torch.nn.Linear(21, 70)
        self.precise = torch.nn.Linear(70, 19, dtype=torch.float64)

    def forward(self, x):
        """Return products of the features with themselves and with weights."""
        y = self.second(self.depthwise(torch.relu(self.first(x)))).flatten(2)
        z = self.wide(y.transpose(1, 2))
        return y @ y.transpose(1, 2), z, self.precise(z.double()), z.transpose(1, 2) @ z


@pytest.mark.parametrize("dynamic", [False, True])
def test_tiles_of_all_sizes_compute_what_eager_does(tmp_path, dynamic):
    if not is_installed("ziglang"):
        pytest.skip("the extra 'native' is not installed")
    torch.manual_seed(0)
    model, x = Layers().eval(), torch.randn(2, 3, 15, 13)
    shapes = ({0: Dim("n", max=9)},) if dynamic else None
    lowered = lower(model, x, output_type="linalg-on-tensors", dynamic_shapes=shapes)
    call = NativeCaller(lowered, lowered.build(tmp_path / "layers", target="host"))
    for count in (1, 2, 9) if dynamic else (2,):
        x = torch.randn(count, 3, 15, 13)
        for result, expected in zip(call(x), model(x), strict=True):
            torch.testing.assert_close(result, expected)


@pytest.mark.parametrize(
    "target, vectors", [("x86-64-v3", "vector<8xf32>"), ("aarch64", "vector<4xf32>"), ("riscv64", None)]
)
def test_vectors_have_the_width_of_the_target(target, vectors):
    lowered = lower(torch.nn.Linear(64, 64), torch.zeros(8, 64), output_type="linalg-on-tensors")
    module = copy_module(lowered.module.operation)
    elide_weights(module)
    text = str(to_buffers(module, "main", PRESETS[target]))
    assert (vectors in text) if vectors else ("vector<" not in text)
