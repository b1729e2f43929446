"""Writes at masks with another number of true elements than there are values."""

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from fx_importer import OutputType, fx, lower
from fx_importer.errors import AssumptionError
from fx_importer.mlir.functions import function_named

X = torch.arange(12.0).reshape(4, 3)
VALUES = -torch.ones(2, 3)
ROWS = {0: Dim.DYNAMIC}


def index_put(x: Tensor, mask: Tensor, values: Tensor) -> Tensor:
    x = x.clone()
    x[mask] = values
    return x


def masked_scatter(x: Tensor, mask: Tensor, values: Tensor) -> Tensor:
    return x.masked_scatter(mask[:, None], values)


def with_indices(x: Tensor, mask: Tensor, values: Tensor) -> Tensor:
    return x.index_put((mask, torch.tensor([0, 2])), values[0, :2])


@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
@pytest.mark.parametrize(
    ("function", "dynamic", "refused"),
    [
        (index_put, False, [0, 1, 3, 4]),
        (index_put, True, [0, 1, 3]),
        (masked_scatter, False, [3]),
        (with_indices, False, [0, 3]),
    ],
)
def test_other_numbers_of_values(function, dynamic, refused, output_type):
    masks = [torch.arange(4) < number for number in range(5)]
    sizes = (ROWS, ROWS, ROWS) if dynamic else None
    lowered = lower(function, X, masks[2], VALUES, output_type=output_type, dynamic_shapes=sizes)
    torch.testing.assert_close(lowered.run(X, masks[2], VALUES), function(X, masks[2], VALUES))
    for number in refused:
        with pytest.raises(AssumptionError, match="`number of true elements of the mask .* raises an error"):
            lowered.run(X, masks[number], VALUES)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, mask: x.index_put((mask,), x[mask] * 2),
        lambda x, mask: x.index_put((x > 3,), x[x > 3] * 2),
        lambda x, mask: x.index_put((mask,), x[0]),
        lambda x, mask: x.index_put((mask,), x[:1]),
        lambda x, mask: x.index_put((torch.arange(4),), x),
        lambda x, mask: x.masked_scatter(mask[:, None], -x),
    ],
)
def test_writes_without_a_check(function):
    lowered = lower(function, X, torch.arange(4) < 2, output_type=OutputType.RAW)
    assert not lowered.manifest.functions["main"].assumptions


@pytest.mark.parametrize("output_type", ["tosa", "stablehlo"])
def test_modules_for_users_of_torch_mlir_have_no_more_results(output_type):
    module = fx.export_and_import(masked_scatter, X, torch.arange(4) < 2, VALUES, output_type=output_type)
    assert len(function_named(module, "main").type.results) == 1
