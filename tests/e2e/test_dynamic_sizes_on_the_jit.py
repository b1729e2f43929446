"""Programs whose sizes are computed at run time run on the JIT."""

import pytest
import torch
from torch.export import Dim

from fx_importer import lower


def chunks(x):
    return x.chunk(2)[0], x.chunk(2, 1)[-1]


def computed_slice(x):
    return x[: x.shape[0] // 2], x[:, x.shape[1] // 3 :]


def tiles(x):
    return x.repeat(2, x.shape[0]), x[:, :1].repeat(1, x.shape[0])


def padded(x):
    return torch.nn.functional.pad(x, (1, 2, 0, -1), value=2.0)


def merged(x):
    return (x.reshape(-1, 1) + x.reshape(1, -1)).sum(0).reshape(x.shape[1], x.shape[0])


def reversed_rows(x):
    return x.flip(0), x.flip(0, 1)


def scans(x):
    return x.cumsum(0), x.cumprod(1), x.cummax(0).indices


def diagonals(x):
    return x.diagonal(1), x.diag_embed()


def scattered(x):
    return x.masked_scatter(x > 0, -x), x.index_select(0, torch.arange(x.shape[0] - 1, -1, -1))


def rows_by_value(x):
    return x[(x.abs() * 100).long()[:, 0] % x.shape[0]]


FUNCTIONS = [
    *(chunks, computed_slice, tiles, padded, merged, reversed_rows, scans, diagonals, scattered, rows_by_value),
]


@pytest.mark.slow_rows("^scans-")
@pytest.mark.in_turn("output_type")
@pytest.mark.parametrize("output_type", ["tosa", "stablehlo"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_results_equal_eager(function, output_type):
    sizes = {0: Dim.DYNAMIC(min=2), 1: Dim.DYNAMIC(min=2)}
    lowered = lower(function, torch.randn(5, 4), output_type=output_type, dynamic_shapes=(sizes,))
    caller = lowered.caller(backend="jit")
    for shape in ((5, 4), (3, 7), (6, 2)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
        torch.testing.assert_close(caller(x), function(x))


@pytest.mark.parametrize("padding, axes", [(0, (2, 3)), (1, (3,)), ((1, 2), (0, 2))], ids=["none", "width", "height"])
def test_convolutions_that_change_dynamic_sizes(padding, axes):
    model, x = torch.nn.Conv2d(2, 3, 5, padding=padding).eval(), torch.randn(2, 2, 7, 8)
    lowered = lower(model, x, output_type="tosa", dynamic_shapes=(dict.fromkeys(axes, Dim.DYNAMIC),))
    larger = torch.cat([x, x], axes[-1])
    torch.testing.assert_close(lowered.caller(backend="jit")(larger), model(larger), rtol=1e-4, atol=1e-5)


def test_strides_of_axes_of_size_1_do_not_matter():
    def every_second_column(x):
        return x[:, 1, :100:2]

    shapes = ({0: "rows", 1: "columns"},)
    lowered = lower(every_second_column, torch.randn(3, 4, 1), output_type="linalg-on-tensors", dynamic_shapes=shapes)
    for rows, columns in ((3, 4), (1, 2)):
        x = torch.randn(rows, columns, 1)
        torch.testing.assert_close(lowered.run(x), every_second_column(x))
