"""Batch normalization, and other scales and shifts of channels, become part of the weights before them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from fx_importer import UsageError, lower
from fx_importer.mlir.walk import operations

NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


class Scaled(nn.Module):
    """``layer``, and a batch normalization of trained statistics."""

    def __init__(self, layer: nn.Module, x: Tensor):
        super().__init__()
        self.layer = layer
        y = layer(x)
        self.norm = NORMS[y.ndim](y.shape[1])
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(x)).relu()


LAYERS = {
    "conv1d": (lambda: nn.Conv1d(4, 6, 3), (2, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, bias=False, padding=1), (2, 4, 5, 5)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 2), (1, 2, 4, 4, 4)),
    "groups": (lambda: nn.Conv2d(4, 8, 3, groups=2), (1, 4, 5, 5)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, bias=False), (1, 4, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), (1, 4, 5, 5)),
    "transposed groups": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False), (1, 4, 5, 5)),
    "linear": (lambda: nn.Linear(4, 6), (3, 4)),
    "linear without bias": (lambda: nn.Linear(4, 6, bias=False), (3, 4)),
}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def scaled(kind: str) -> tuple[Scaled, Tensor]:
    make, shape = LAYERS[kind]
    x = torch.randn(shape)
    return Scaled(make(), x).eval(), x


def count(lowered, *names: str) -> int:
    return len(operations(lowered.module.operation, names))


def check(lowered, model: nn.Module, x: Tensor) -> None:
    """Compare results with those of ``model`` in float64: folding loses nothing beyond float32's rounding."""
    found, exact = lowered.run(x), model(x)
    assert (found - exact).norm() < 1e-6 * exact.norm()


@pytest.mark.parametrize("kind", LAYERS)
def test_batch_norm_is_part_of_the_weights(kind: str):
    model, x = scaled(kind)
    lowered = lower(model, x, output_type="linalg")
    assert count(lowered, "arith.mulf") <= count(lower(model.layer, x, output_type="linalg"), "arith.mulf")
    assert not count(lowered, "math.rsqrt")
    check(lowered, model, x)


@pytest.mark.parametrize("output_type, multiply", [("tosa", "tosa.mul"), ("stablehlo", "stablehlo.multiply")])
def test_output_types(output_type: str, multiply: str):
    model, x = scaled("conv2d")
    lowered = lower(model, x, output_type=output_type)
    assert not count(lowered, multiply)
    check(lowered, model, x)
    whole = lower(model, x, output_type=output_type, fold=False)
    assert count(whole, multiply)
    check(whole, model, x)


def test_a_dynamic_batch():
    model, x = scaled("conv2d")
    lowered = lower(model, x, output_type="stablehlo", dynamic_shapes=({0: "batch"},))
    assert not count(lowered, "stablehlo.multiply")
    for size in (1, 3):
        check(lowered, model, torch.randn(size, *x.shape[1:]))


def test_chains_of_scales_and_shifts():
    class Affine(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 6)
            self.scale, self.shift = nn.Parameter(torch.randn(6)), nn.Buffer(torch.randn(1, 6))

        def forward(self, x: Tensor) -> Tensor:
            return (self.scale * (self.layer(x) - self.shift) + 1.0) * self.scale

    model, x = Affine(), torch.randn(3, 4)
    lowered = lower(model, x, output_type="tosa")
    assert count(lowered, "tosa.matmul", "tosa.add", "tosa.mul", "tosa.sub") == 2
    check(lowered, model, x)


class Kept(nn.Module):
    """Scales that cannot be folded: of a result used twice, by an input, by state, by rows, to infinity."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(2, 2, 1, bias=False)
        self.scale = nn.Parameter(torch.tensor([2.0, 3.0]).reshape(2, 1, 1))
        self.state = nn.Buffer(torch.tensor([2.0, 3.0]).reshape(2, 1, 1))
        self.rows = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]).reshape(3, 1))
        self.large = nn.Parameter(torch.full((2, 1, 1), 3e38))

    def forward(self, x: Tensor, by: Tensor) -> tuple[Tensor, ...]:
        twice = self.layer(x)
        results = twice, twice * self.scale, self.layer(x) * by, self.layer(x) * self.state, self.layer(x) * self.rows
        self.state += 1
        return *results, (self.layer(x) * self.large) * 1e-38


def test_what_is_not_by_channel_or_constant_stays():
    model, x, by = Kept(), torch.randn(1, 2, 3, 3) / 100, torch.randn(2, 1, 1)
    nn.init.constant_(model.layer.weight, 4.0)
    lowered = lower(model, x, by, output_type="linalg", mutation="functional")
    expected = copy.deepcopy(model)(x, by)
    for found, each in zip(lowered.run(x, by), expected, strict=True):
        torch.testing.assert_close(found, each, rtol=1e-6, atol=1e-6)


def test_weights_outside_the_module_and_those_that_train_stay():
    model, x = scaled("conv2d")
    outside = lower(model, x, output_type="linalg", weights="external")
    assert {"layer.weight", "norm.weight", "norm.running_var"} <= set(outside.manifest.weights)
    assert "folded" not in str(lower(model, x, output_type="torch").module)


def test_cached_modules_belong_to_the_weights_that_they_hold(tmp_path, monkeypatch):
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", str(tmp_path))
    model, x = scaled("conv2d")
    taken = []
    for _ in range(3):
        lowered = lower(model, x, output_type="linalg")
        check(lowered, model, x)
        taken.append(lowered.trace.stages[-1].name == "cache")
        if len(taken) == 2:
            with torch.no_grad():
                next(model.layer.parameters()).mul_(2)
    assert taken == [False, True, False]


def test_a_change_of_folded_weights_before_the_first_call_is_refused():
    model, x = scaled("conv2d")
    lowered = lower(model, x, output_type="linalg")
    with torch.no_grad():
        next(model.layer.parameters()).mul_(3)
    with pytest.raises(UsageError, match="weights of the model were changed in place after the lowering"):
        lowered.run(x)


def test_names_of_constants_are_new():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.weight_folded = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight.exp() + self.weight_folded

    model, x = Named(), torch.randn(2, 4)
    check(lower(model, x, output_type="linalg"), model, x)


def test_equal_constants_are_one():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(64, 64, bias=False))

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(5):
                x = self.layer(x).tanh()
            return x

    model, x = Cell(), torch.randn(2, 64)
    lowered = lower(model, x, output_type="linalg")
    assert (
        len(
            {
                str(op.attributes["value"])
                for op in operations(lowered.module.operation, ("arith.constant",))
                if "resource" in str(op)
            }
        )
        == 1
    )
    check(lowered, model, x)


def test_weights_of_several_operators_are_not_copied():
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(160, 160) / 20)
            self.scales = nn.ParameterList(torch.rand(160) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for scale in self.scales:
                x = (x @ self.weight) * scale
            return x

    model, x = Steps(), torch.randn(2, 160)
    lowered = lower(model, x, output_type="linalg")
    assert "weight_folded" not in str(lowered.module)
    check(lowered, model, x)
