"""Sizes that depend on values, which operators need to be large enough."""

import math

import pytest
import torch
from torch.nn import functional as F

from fx_importer import UsageError, lower
from fx_importer.errors import AssumptionWarning


@pytest.mark.parametrize(
    ("function", "needed"),
    [
        (lambda y: (y[3], y[-4], y.narrow(0, 1, 3), y.narrow(0, -2, 1)), ["0 >= 4", "0 >= 2"]),
        (lambda y: torch.select_scatter(y, y[0, 0].expand(2), 0, 2), ["0 >= 1", "0 >= 3"]),
        (lambda y: (y.amax(0), y.argmin(), y.max(), y.aminmax(dim=0), y.mode(0)), ["0 >= 1"]),
        (lambda y: (y.median(0), y.nanmedian(0), y.min(-2), torch.linalg.vector_norm(y, math.inf)), ["0 >= 1"]),
        (lambda y: (y.kthvalue(2, 0), y.topk(3, dim=0)), ["0 >= 2", "0 >= 3"]),
        (lambda y: (y.amax(1), y.max(1), y.argmax(-1), torch.linalg.vector_norm(y), y.median(), y.topk(0, 0)), []),
        (lambda y: torch.cat([y, torch.ones(2, 2)]).amax(0), []),
        (lambda y: (y[1:].amax(0), y[:, None].squeeze(1)), ["0 >= 1"]),
        (lambda y: (F.pad(y, (0, 0, -2, -1)), F.pad(y, (1, 1))), ["0 >= 3"]),
        (lambda y: F.pad(y.T[None], (1, 2), mode="reflect"), ["2 >= 3"]),
        (lambda y: F.pad(y.T[None], (1, 2), mode="replicate"), ["2 >= 1"]),
        (lambda y: F.max_pool1d(y.T[None], 3, padding=1, return_indices=True)[0], ["2 >= 1"]),
        (lambda y: F.avg_pool2d(y[None], (2, 1), stride=2), ["1 >= 2"]),
    ],
)
def test_needed_sizes(function, needed):
    lowered = lower(lambda x: function(x[x[:, 0] > 0]), torch.ones(5, 2), output_type="raw")
    texts = [text.partition("`size ")[2] for text in lowered.manifest.functions["main"].assumptions]
    assert [f"{text.split(' of ')[0]} >= {text.split(' >= ')[1].split(',')[0]}" for text in texts] == needed


def test_axis_that_squeeze_keeps_has_a_warning():
    with pytest.warns(AssumptionWarning, match="`size 0 of aten.* != 1, in .*` is True"):
        lower(lambda x: x[x > 0].squeeze(), torch.ones(3), output_type="raw")


def test_inputs_that_are_too_small_are_errors():
    def model(x, y):
        return x.unfold(0, 2, 1), F.max_pool2d(y[None], 2)

    sizes = ({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO})
    lowered = lower(model, torch.ones(5, 4), torch.ones(6, 4), output_type="stablehlo", dynamic_shapes=sizes)
    for m, n in ((1, 4), (4, 1)):
        with pytest.raises(UsageError, match=r"shape\[0\] >= 2.* is 1"):
            lowered(torch.ones(m, 4), torch.ones(n, 4))
