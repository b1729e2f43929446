"""Numbers that depend on values, which operators need to be equal or in a range."""

import pytest
import torch
from torch import Tensor

from fx_importer import lower
from fx_importer.errors import AssumptionError

X = torch.tensor([0.0, 1, 2, 2, 3, 4])
SIZE = "size 0 of aten.index.Tensor"


def parts(x: Tensor, n: Tensor):
    return x.split([n.item(), 6 - n.item()])


@pytest.mark.parametrize(
    ("function", "accepted", "refused"),
    [
        (lambda x, n: x.reshape(n.item(), -1), (2, 1), {4: r"(6 % n.item()) == 0", -1: "n.item() >= 0"}),
        (parts, (2, 0, 6), {7: "n.item() <= 6"}),
        (lambda x, n: torch.cat([x[x > n], x[x < n]]), (2, 0, 9), {}),
        (lambda x, n: torch.stack([x[x > n], x[x < n]]), (2,), {3: f"{SIZE} == {SIZE}"}),
        (lambda x, n: x[x < n].reshape(-1, 2), (3, 2, 0, 9), {1: f"({SIZE} % 2) == 0"}),
        (lambda x, n: x[x <= n].expand(2), (1,), {0: SIZE, 2: SIZE}),
    ],
)
@pytest.mark.filterwarnings("ignore::fx_importer.errors.AssumptionWarning")
def test_numbers_that_operators_do_not_take(function, accepted, refused):
    lowered = lower(function, X, torch.tensor(accepted[0]), output_type="linalg")
    for number in accepted:
        torch.testing.assert_close(lowered.run(X, torch.tensor(number)), function(X, torch.tensor(number)))
    for number, text in refused.items():
        with pytest.raises(AssumptionError) as error:
            lowered.run(X, torch.tensor(number))
        assert text in str(error.value)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n, y: torch.stack([x[x > n], y]),
        lambda x, n, y: x[x > n] + y,
        lambda x, n, y: x[x > n] @ y,
        lambda x, n, y: torch.cat([x.masked_select(x > n)[None], y[None]]),
        lambda x, n, y: (x > n).nonzero()[:, 0] * y[None],
    ],
)
def test_number_of_elements_and_dynamic_size(function):
    """torch.export takes the size of ``y`` for the number of selected elements, and does not compare the two."""
    n, sizes = torch.tensor(1), (None, None, {0: torch.export.Dim.DYNAMIC})
    lowered = lower(function, X, n, X[:4], output_type="linalg", dynamic_shapes=sizes)
    for number, size in ((1, 4), (2, 2)):
        arguments = (X, torch.tensor(number), X[:size])
        torch.testing.assert_close(lowered.run(*arguments), function(*arguments))
    for number, size in ((1, 2), (2, 3), (9, 2)):
        with pytest.raises(RuntimeError):
            function(X, torch.tensor(number), X[:size])
        with pytest.raises(AssumptionError, match="==.*otherwise the model raises an error, or broadcasts"):
            lowered.run(X, torch.tensor(number), X[:size])
