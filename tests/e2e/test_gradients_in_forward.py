"""Models whose code computes gradients: forces, residuals of differential equations, attributions."""

import pytest
import torch
from torch import Tensor, nn

from fx_importer import lower


class Energy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


class Force(Energy):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        with torch.no_grad():
            shift = self.layers(x).mean()
        energy = self.layers(x).sum()
        (slope,) = torch.autograd.grad(energy, x)
        return energy.detach(), shift - slope


class Laplacian(Energy):
    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x.requires_grad_()
            (slope,) = torch.autograd.grad(self.layers(x).sum(), x, create_graph=True)
            rows = [torch.autograd.grad(slope[:, i].sum(), x, retain_graph=True)[0][:, i] for i in range(2)]
        return torch.stack(rows)


class Slopes(Energy):
    """Gradients of torch.func, and results that require gradients."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x.requires_grad_()
        y = self.layers(x)
        (slope,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
        return slope, torch.func.jacrev(lambda x: self.layers(x).sum())(x.sin())


@pytest.mark.parametrize(
    "kind, output_type, batch",
    [(Force, "linalg-on-tensors", 5), (Laplacian, "tosa", 3), (Slopes, "linalg-on-tensors", 3)],
    ids=["force-dynamic", "laplacian-tosa", "slopes"],
)
def test_gradients_in_forward_are_those_of_eager(kind: type[Energy], output_type: str, batch: int) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    shapes = ({0: torch.export.Dim.DYNAMIC},) if batch == 5 else None
    lowered = lower(model, torch.randn(3, 4), output_type=output_type, capture="export", dynamic_shapes=shapes)
    x = torch.randn(batch, 4)
    torch.testing.assert_close(lowered.run(x), model(x.clone()))
    assert set(vars(model)) == set(vars(kind()))
