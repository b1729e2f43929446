"""Structure of arguments and results: several, nested, constant, scalar, none."""

import torch
from torch import nn

from .harness import Case, check, normal, table

X = normal(2, 3)


class Constants(nn.Module):
    """Weights as results, one of them tied."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(normal(4, 3))
        self.tied = self.weight
        self.register_buffer("table", torch.arange(5))

    def forward(self, x: torch.Tensor):
        return self.weight, x @ self.tied.T, self.table


@table(
    Case("nested", lambda: (lambda x: {"a": x + 1, "b": [x * 2, (x.sum(),)]}, (X,))),
    Case("nested_inputs", lambda: (lambda x: x["a"] + x["b"][0] * x["b"][1], ({"a": X, "b": [X, X[0]]},))),
    Case("none_and_numbers", lambda: (lambda x: (x + 1, None, 3, 2.5, True), (X,))),
    Case("fixed_numbers", lambda: (lambda x, n, t: x * n if t else x, (X, 3, True))),
    Case("the_same_twice", lambda: (lambda x: ((y := x + 1), y, y.view(3, 2)), (X,))),
    Case("the_input", lambda: (lambda x: (x, x.T, x + 0), (X,))),
    Case("constants", lambda: (Constants(), (X,))),
    Case("unused_input", lambda: (lambda x, y: y * 2, (X, X))),
    Case("no_axes", lambda: (lambda x: (x + 1, x.reshape(1), x.expand(3)), (torch.tensor(2.0),))),
    Case(
        "number_from_a_tensor",
        lambda: (lambda x: x.max().item(), (X,)),
    ),
    Case("strided_input", lambda: (lambda x: x + x.sum(0), (normal(3, 2).T,))),
    Case("expanded_input", lambda: (lambda x: x * 2, (normal(1, 3).expand(4, 3),))),
    Case("empty_input", lambda: (lambda x: (x + 1, x.sum(0), x), (torch.zeros(0, 3),))),
    Case("nothing_to_compute", lambda: (lambda x: x.cos(), (torch.zeros(0, 3),))),
    Case("joined_with_nothing", lambda: (lambda x, y: torch.cat([x, y], 1) + 1, (X, torch.zeros(2, 0)))),
)
def test_results(case, output_type):
    check(case, output_type)
