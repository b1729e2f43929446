"""Rules of variances against eager."""

import pytest
import torch
from torch.testing import assert_close

from fx_importer import lower
from fx_importer.decompositions.reduction import variance

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("dim", [None, [], [1], [0, -1]])
@pytest.mark.parametrize("correction", [None, 0, 1, 0.5, 100])
@pytest.mark.parametrize("keepdim", [False, True])
def test_variance(dim: list[int] | None, correction: float | None, keepdim: bool) -> None:
    x = torch.randn(2, 3, 4) + 100
    settings = {"correction": correction, "keepdim": keepdim}
    close = {"rtol": 1e-4, "atol": 1e-4, "equal_nan": True}
    assert_close(variance.var(x, dim, **settings), aten.var.correction(x, dim, **settings), **close)
    assert_close(variance.std(x, dim, **settings), aten.std.correction(x, dim, **settings), **close)
    assert_close(variance.var_mean(x, dim, **settings), aten.var_mean.correction(x, dim, **settings), **close)
    assert_close(variance.std_mean(x, dim, **settings), aten.std_mean.correction(x, dim, **settings), **close)


def test_variance_of_complex_numbers() -> None:
    x = torch.randn(3, 4, dtype=torch.complex64)
    assert_close(variance.var(x, [1]), x.var(1))
    assert variance.var(torch.tensor(3.0)).isnan()


def test_deviation_in_half_precision_of_a_variance_that_is_not() -> None:
    x = torch.tensor([60000.0, -3.0, 2.0, 6.0], dtype=torch.float16)
    assert_close(variance.std(x), x.std())
    assert_close(variance.std_mean(x), torch.std_mean(x))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("correction", [1, 2.5])
@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo"])
def test_variance_of_dynamic_sizes_divides_by_zero_at_most(output_type: str, correction: float) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.var(x, [0, 1], correction=correction)

    sizes = dict.fromkeys((0, 1), torch.export.Dim.AUTO)
    lowered = lower(f, torch.randn(3, 4), output_type=output_type, dynamic_shapes=(sizes,))
    for shape in ((3, 4), (1, 1), (2, 1), (0, 4), (0, 0)):
        x = torch.randn(shape)
        assert_close(lowered.run(x), f(x), equal_nan=True)
