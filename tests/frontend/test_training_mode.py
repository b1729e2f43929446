"""A model in training mode gets a warning if that changes what it computes."""

from __future__ import annotations

import warnings

import pytest
import torch

import fx_importer


@pytest.mark.slow_rows("^rrelu$", "^attention$")
@pytest.mark.parametrize(
    "layer, operator",
    [
        (torch.nn.Dropout(0.5), "dropout"),
        (torch.nn.BatchNorm1d(4), "batch_norm"),
        (torch.nn.RReLU(), "rrelu"),
        (torch.nn.TransformerEncoderLayer(4, 2, batch_first=True), "scaled_dot_product_attention, dropout"),
    ],
    ids=["dropout", "batch_norm", "rrelu", "attention"],
)
def test_training_mode_is_a_warning(layer, operator) -> None:
    model = torch.nn.Sequential(layer)
    example = torch.randn(2, 3, 4) if "attention" in operator else torch.randn(2, 4)
    with pytest.warns(UserWarning, match=rf"operators {operator}: call model.eval\(\) before"):
        fx_importer.lower(model, example, mutation="functional")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fx_importer.lower(model.eval(), example)


@pytest.mark.parametrize("layer", [torch.nn.Linear(4, 4), torch.nn.Dropout(0.0), torch.nn.LSTM(4, 4)])
def test_models_that_compute_the_same_get_none(layer) -> None:
    fx_importer.lower(layer, torch.randn(2, 3, 4))


class Seeded(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(torch.initial_seed() % 1000 + 1)
        return x + torch.rand(3)


def test_a_seed_in_forward_is_a_warning() -> None:
    with pytest.warns(fx_importer.errors.RandomNumbersWarning, match="Seeded calls torch.manual_seed"):
        fx_importer.lower(Seeded(), torch.ones(3), output_type="raw")
