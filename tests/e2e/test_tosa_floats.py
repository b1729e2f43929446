"""float64 in TOSA, on Arm's reference model against eager: inside a program, and at its boundary."""

import importlib.util

import pytest
import torch

from fx_importer import StageFailed, UnsupportedProgramError, UsageError, lower
from tests.e2e.harness import assert_same, normal

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tosa_reference_model") is None, reason="the extra 'tosa' is not installed"
)

F = torch.nn.functional
X = normal(4, 5)
WIDE = X.double()


def inside(x):
    y = x.double()
    floats = (
        *(x.softmax(1, dtype=torch.float64), x.sum(dtype=torch.float64), x.cumsum(1, dtype=torch.float64), y @ y.T),
        *(y.clamp(-0.1, 0.2), y.var(1), y.exp() // 0.3, y.abs() ** 1.5, torch.lgamma(y), F.layer_norm(y, (5,))),
        *(y.index_put((torch.tensor([1, 1]),), y[:2], accumulate=True), y.scatter(0, y.argmax(0)[None], y[:1])),
        *(F.conv1d(y[None], torch.ones(2, 4, 3).double()), F.max_pool2d(y[None], 2), (y * 1j).abs(), y.sort(1)[0]),
    )
    return (*(each.float() for each in floats), y.long(), y > 0.1, y.half(), torch.where(x > 0, x, 0.5))


class Buffers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Buffer(torch.linspace(0, 1, 5, dtype=torch.float64))
        self.large = torch.nn.Buffer(normal(5, 200, dtype=torch.float64))

    def forward(self, x):
        return ((x.double() * self.scale) @ self.large).float()


@pytest.mark.parametrize("model", [inside, Buffers()], ids=["operators", "weights"])
def test_inside(model):
    lowered = lower(model, X, output_type="tosa")
    assert_same(lowered.run(X), model(X), (1e-4, 1e-4))
    (remark,) = [each for stage in lowered.trace.stages for each in stage.remarks if "float64" in each]
    assert remark.startswith("TOSA has no torch.float64: ")
    assert "are computed in torch.float32, the first at" in remark


def test_constants_are_folded_in_float64():
    def rotary(x):
        return x * torch.cos(torch.arange(5, dtype=torch.float64) * 1e6 / 3).float()

    lowered = lower(rotary, X, output_type="tosa")
    assert_same(lowered.run(X), rotary(X), (0, 0))
    assert not [each for stage in lowered.trace.stages for each in stage.remarks if "float64" in each]


def test_inside_of_branches_and_loops():
    def program(x):
        y = torch.cond(x.sum() > 0, lambda x: (x.double() * 2).float(), lambda x: x + 1, (x,))
        looped = torch.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x.double()))
        return y, looped[1].float()

    assert_same(lower(program, X, output_type="tosa").run(X), program(X), None)


@pytest.mark.parametrize(
    "program, inputs, error",
    [
        (lambda x: x * 2, (WIDE,), StageFailed),
        (lambda x: x.double() * 2, (X,), StageFailed),
        (lambda x: x * 2, (WIDE * 1j,), UnsupportedProgramError),
    ],
    ids=["input", "result", "complex"],
)
def test_boundary_is_refused(program, inputs, error):
    with pytest.raises(error, match=r"narrow_floats=True"):
        lower(program, *inputs, output_type="tosa")


def test_narrow_floats():
    def program(x, z, index):
        return x * 2, x[index], x.float(), z * 1j, x, (x > 0).sum()

    inputs = (WIDE, torch.complex(WIDE, WIDE + 1), torch.tensor([2, 0]))
    lowered = lower(program, *inputs, output_type="tosa", narrow_floats=True, narrow_integers=True)
    assert "f64" not in str(lowered.module)
    assert_same(lowered.run(*inputs), program(*inputs), (1e-6, 1e-6))
    arguments = lowered.manifest.functions["main"].arguments
    passed = [("float64", "float32"), ("complex128", "float32"), ("int64", "int32")]
    assert [(each.type.dtype, each.passed_as) for each in arguments] == passed
    assert lowered.verify(backends=["tosa_reference", "eager"])
    with pytest.raises(UsageError, match="'x' holds numbers as large as 1e\\+300, but .* narrow_floats, .* float32"):
        lowered.run(torch.full_like(WIDE, 1e300), *inputs[1:])
    assert_same(lowered.run(WIDE / 0, *inputs[1:])[0], WIDE / 0, None)  # infinities fit


@pytest.mark.parametrize("weights", ["inline", "args"])
def test_narrow_weights(weights):
    model = torch.nn.Linear(5, 2).double()
    lowered = lower(model, WIDE, output_type="tosa", narrow_floats=True, weights=weights)
    assert_same(lowered.run(WIDE), model(WIDE).detach(), (1e-5, 1e-5))


def test_external_weight_is_refused():
    model = torch.nn.Linear(5, 2).double()
    with pytest.raises(StageFailed, match="an external weight of float64 .* weights='inline'"):
        lower(model, WIDE, output_type="tosa", narrow_floats=True, weights="external")


def test_fallback_keeps_float64():
    lowered = lower(torch.sin, WIDE, output_type="tosa", fallback="linalg")
    assert_same(lowered.run(WIDE), WIDE.sin(), None)
    assert not [each for stage in lowered.trace.stages for each in stage.remarks if "computed in" in each]


@torch.no_grad()
def test_narrow_state():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.total = torch.nn.Buffer(torch.zeros(5, dtype=torch.float64))

        def forward(self, x):
            self.total.add_(x.sum(0))
            return x + 1

    caller = lower(Counter(), X, output_type="tosa", mutation="functional", narrow_floats=True).caller()
    caller(X)
    torch.testing.assert_close(caller.state["total"], WIDE.sum(0), rtol=1e-6, atol=1e-6)
