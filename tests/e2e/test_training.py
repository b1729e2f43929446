"""Joint forward and backward programs: the loss, and gradients by name."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import export
from torch.export.experimental import _export_forward_backward

from fx_importer import lower
from fx_importer.errors import AssumptionError, UsageError


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))

    def forward(self, x, target):
        return nn.functional.mse_loss(self.layers(x), target)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 5)

    def forward(self, tokens, labels):
        return nn.functional.cross_entropy(self.head(self.embedding(tokens).mean(1)), labels)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm, self.head = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Linear(3, 1)

    def forward(self, x, target):
        features = torch.relu(self.norm(self.convolution(x))).amax((2, 3))
        return (self.head(features) - target).square().mean()


CASES = {
    "regression": (Regression, lambda: (torch.randn(4, 3), torch.randn(4, 2))),
    "classifier": (Classifier, lambda: (torch.randint(0, 7, (3, 6)), torch.tensor([1, 4, 0]))),
    "images": (Images, lambda: (torch.randn(2, 2, 5, 5), torch.randn(2, 1))),
}


# torch 2.13 copies pytree specs in a way that torch 2.13 warns of.
@pytest.mark.slow_rows("^images$", "^regression$")
@pytest.mark.filterwarnings("ignore:.*isinstance\\(treespec, LeafSpec\\):FutureWarning")
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients(case):
    torch.manual_seed(0)
    build, inputs = CASES[case]
    model, given = build(), inputs()
    program = _export_forward_backward(export(model, given))
    caller = lower(program, mutation="functional", output_type="linalg").caller()
    torch.testing.assert_close(caller(*given), (loss := model(*given)).detach())
    loss.backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert caller.gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(caller.gradients[name], gradient, rtol=1e-4, atol=1e-6)
    for name, tensor in caller.state.items():
        torch.testing.assert_close(tensor, model.get_buffer(name))


class Branching(nn.Module):
    """A loss with other results, a branch on values, a counter, and parameters with and without gradients."""

    def __init__(self):
        super().__init__()
        self.layer, self.unused = nn.Linear(3, 2), nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("steps", torch.ones(()))

    def forward(self, x, y):
        if (x > 9).any():
            raise ValueError("large")
        self.steps += 1
        scores = self.layer(x * y) * self.frozen / self.steps
        likelihood = F.ctc_loss(scores.log_softmax(1), torch.ones(2).long(), torch.tensor(4), torch.tensor(2))
        return {"loss": scores.tanh().mean() + likelihood, "count": 3, "scores": scores, "classes": scores.argmax(-1)}


@pytest.mark.slow_rows("linalg", "tosa")
@pytest.mark.filterwarnings("ignore::fx_importer.errors.AssumptionWarning")
@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
def test_gradients_option_captures_under_assumptions(output_type):
    torch.manual_seed(0)
    model, x, y = Branching(), torch.randn(4, 3), torch.randn(4, 3, requires_grad=True)
    lowered = lower(model, x, y, output_type=output_type, gradients=True, mutation="functional")
    assert lowered.verify()
    caller = lowered.caller(backend="jit")
    results, expected = caller(x, y.detach()), model(x, y)
    expected["loss"].backward()
    torch.testing.assert_close(results, {key: getattr(value, "data", value) for key, value in expected.items()})
    assert caller.gradients.keys() == {"layer.weight", "layer.bias", "y"}
    for name, tensor in (("layer.weight", model.layer.weight), ("layer.bias", model.layer.bias), ("y", y)):
        torch.testing.assert_close(caller.gradients[name], tensor.grad)
    with pytest.raises(AssumptionError, match="large"):
        caller(x + 10, y.detach())


class Caching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.cached = [self.layer.weight]

    def forward(self, x):
        return (x @ self.cached[0].t()).sum()


def test_gradients_option_refuses_programs_without_a_loss():
    model = nn.Linear(3, 2)
    with pytest.raises(UsageError, match=r"first result is of shape \[4, 2\]\. Wrap"):
        lower(model, torch.randn(4, 3), gradients=True)
    frozen = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)).requires_grad_(False)
    with pytest.raises(UsageError, match="that depends on no parameter or input that requires"):
        lower(frozen, torch.randn(1, 3), gradients=True)
    with pytest.raises(UsageError, match="would lose the gradient of the parameter 'layer.weight'"):
        lower(Caching(), torch.randn(4, 3), gradients=True)
    lowered = lower(lambda x: x.sum(), torch.ones(3, requires_grad=True), output_type="raw", gradients=True)
    with pytest.raises(UsageError, match="computes them already"):
        lower(lowered.exported["main"], gradients=True)
