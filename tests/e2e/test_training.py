"""Joint forward and backward programs: the loss, and gradients by name."""

import pytest
import torch
from torch import nn
from torch.export import export
from torch.export.experimental import _export_forward_backward

from fx_importer import lower


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
