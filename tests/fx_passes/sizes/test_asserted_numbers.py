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
