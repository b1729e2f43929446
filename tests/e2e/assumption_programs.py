"""Programs whose Python code branches on values: each with example inputs, and inputs that answer otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def sum_is_positive(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x * 3


def raises(x: Tensor) -> Tensor:
    if (x < 0).any():
        raise ValueError("negative input")
    return x.sqrt()


def asserts(x: Tensor) -> Tensor:
    assert (x[1:] > x[:-1]).all(), "x must increase"
    return x * 2


def number(x: Tensor) -> Tensor:
    return x * 2 if x.sum().item() > 0.1 else x * 3


def bounds(x: Tensor, n: Tensor) -> Tensor:
    if n.item() > 1 and n.item() > 4 and n.item() < 9:
        return x * 2
    return x * 3


def integer(x: Tensor, n: Tensor) -> Tensor:
    return x[: int(n.max())].sum() * 2


def python_range(x: Tensor, n: Tensor) -> Tensor:
    for _ in range(int(n)):
        x = x * 2
    return x


def halves(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if (n[n > 0] // 2).max() > 1 else x * 3


def selected(x: Tensor, n: Tensor) -> Tensor:
    for factor in torch.unbind(input=n[n > 0].flip(0)):
        x = x * factor - 1
    return x


def length_of_selection(x: Tensor, n: Tensor) -> Tensor:
    rows = x.expand(2, 3)[:, n > 0]
    return rows.sum() if rows.shape[1] == 2 else x.sum() * 3


def number_of_selected(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    rows = x[n > 0]
    number = torch.scalar_tensor(rows.shape[0], dtype=torch.int32)
    return (x * 2 if rows.shape[0] > 1 else x * 3), number


def distinct(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if len(torch.unique(n)) * 2 == 6 else x


def distinct_rows(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if torch.unique(torch.stack([n, n.clamp(0, 1)], 1), dim=0).shape[0] == 3 else x


def runs(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if len(torch.unique_consecutive(n)) > 2 else x


def bins(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if len(torch.bincount(n, minlength=3)) == 5 else x


def repeated(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if len(torch.repeat_interleave(x, n.clamp(0, 9))) == 7 else x


def listed(x: Tensor, n: Tensor) -> Tensor:
    return torch.cat([x * size for size in n.tolist() if size > 0])


def loop_until(x: Tensor) -> Tensor:
    while x.abs().max() > 1:
        x = x / 2
    return x


def two_questions(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 and x[0] < 5 else x * 3


def negated(x: Tensor) -> Tensor:
    return x * 2 if not x.any() else x * 3


def none_is_nan(x: Tensor) -> Tensor:
    return x * 2 if torch.isnan(x).any() else x * 3


def equal(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 if torch.equal(x, y) else x * 3


def all_close(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 if torch.allclose(x, y) else x * 3


def nested(x: Tensor) -> Tensor:
    if x[0] > 0:
        return x * 2 if x[1] > 0 else x * 3
    return x * 4


def after_a_write(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = y[0] - 5
    return y * 2 if y[0] > 0 else y * 3


def comparison_of_two(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 if x.sum() > y.sum() else y * 3


def comparison_of_numbers(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 if x.sum().item() > y.sum().item() + 1 else y * 3


def boolean_input(x: Tensor, flag: Tensor) -> Tensor:
    return x * 2 if flag else x * 3


def integer_input(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if n == 3 else x * 3


def integer_number(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if n.item() % 2 == 0 else x * 3


def narrow_integer(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if n.item() > 1000 else x * 3


def float_of(x: Tensor) -> Tensor:
    return x * (2 if float(x.max()) >= 1.5 else 3)


def min_of_numbers(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if min(n[0].item(), n[1].item()) > 2 else x * 3


def is_nonzero(x: Tensor) -> Tensor:
    return x * 2 if torch.is_nonzero(x[0]) else x * 3


def membership(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if 3 in n else x * 3


def generator(x: Tensor) -> Tensor:
    return x * next((i + 2 for i in range(3) if x[i] > 0), 9)


def sorted_input(x: Tensor) -> Tensor:
    return x * 2 if torch.all(x.sort().values == x) else x * 3


def padding(x: Tensor, mask: Tensor) -> Tensor:
    return x * mask if not mask.all() else x


def checked_by_torch(x: Tensor, scale: Tensor) -> Tensor:
    return torch.distributions.Normal(x, scale).log_prob(x * 2)


def in_a_body(x: Tensor, n: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x * 2 if n.item() > 2 else x, lambda x: x - 1, (x,))


def loop_in_a_body(x: Tensor, n: Tensor) -> Tensor:
    def repeated(x: Tensor) -> Tensor:
        for _ in range(int(n)):
            x = x * 2
        return x

    return torch.cond(x.sum() > 0, repeated, lambda x: x - 1, (x,))


def after_a_body(x: Tensor, n: Tensor) -> Tensor:
    y = torch.cond(n > 2, lambda x: x * 2, lambda x: x - 1, (x,))
    return y + 1 if y.sum() > 0 else y


def asserts_in_a_branch(x: Tensor) -> Tensor:
    def doubled(x: Tensor) -> Tensor:
        assert x[0] > 0, "inner"
        return x * 2

    return torch.cond(x.sum() > -9, doubled, lambda x: x - 1, (x,))


def asserts_a_size(x: Tensor, n: Tensor) -> Tensor:
    size = int(n.max())
    assert size < 3
    return x[:size] * 2


def number_and_size(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if n.item() > x.shape[0] else x * 3


def odd(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if int(n.item()) & 1 else x * 3


def large(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if n.item() * 10**18 > 5 else x * 3


def listed_positions(x: Tensor, mask: Tensor) -> Tensor:
    total = torch.zeros(())
    for position in mask.nonzero():
        total = total * 2 + x[position].sum()
    return total


def listed_numbers(x: Tensor, mask: Tensor) -> Tensor:
    return x * sum(int(position) for position in torch.where(mask)[0])


def pairs(x: Tensor, n: Tensor) -> Tensor:
    rows, columns = torch.where(n[:, None] == n)
    return x[rows] * x[columns] if len(rows) > 3 else x + (x * x[:, None])[n[:, None] != n].sum()


def mask_and_numbers(x: Tensor, n: Tensor) -> Tensor:
    return (x * x[:, None])[x > 0, n]


def listed_rows(x: Tensor, mask: Tensor) -> Any:
    return sum(x[position] * 2 for position in mask.nonzero().flatten().tolist())


def divided(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if n.item() / 10 > 0.29 else x * 3


def distinct_numbers(x: Tensor, n: Tensor) -> Tensor:
    return x * len(set(n.tolist()))


def divided_rows(x: Tensor, n: Tensor) -> Tensor:
    first, second = x.split(n.tolist())
    return first.sum() * 2 + second.sum()


def counted(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    return torch.bincount(n, minlength=2) * 2, torch.bincount(n, x)


def named(x: Tensor, n: Tensor) -> Tensor:
    return {"expert_0": torch.exp, "expert_2": torch.neg}[f"expert_{n.flip(0)[0]}"](x)


def rounded(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if round(n.item() / 2) == 2 else x * 3


def is_nan(x: Tensor) -> Tensor:
    return x * 2 if math.isnan(x[1].item()) else x * 3


class Counts(nn.Module):
    """The branch depends on a buffer that each call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2 if self.calls < 1 else x * 3
        self.calls += 1
        return y


ONES, MINUS = torch.ones(3), -torch.ones(3)
RISING, FALLING = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([3.0, 2.0, 1.0])
ABOVE, BELOW = torch.tensor([0.1, 0.0, 0.0]), torch.tensor([0.0999, 0.0, 0.0])
NAN = torch.tensor([1.0, float("nan"), 2.0])


def whole(*numbers: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.tensor(numbers, dtype=dtype)


def scalar(number: float) -> Tensor:
    return torch.tensor(number)


Program = tuple[Callable[..., Any], tuple[Tensor, ...], tuple[Tensor, ...]]
PROGRAMS: Mapping[str, Program] = {
    "sum": (sum_is_positive, (ONES,), (MINUS,)),
    "sum_the_other_way": (sum_is_positive, (MINUS,), (ONES,)),
    "raise": (raises, (ONES,), (MINUS,)),
    "assert": (asserts, (RISING,), (FALLING,)),
    "number": (number, (ABOVE,), (BELOW,)),
    "number_below": (number, (BELOW,), (ABOVE,)),
    "bounds": (bounds, (ONES, scalar(5)), (ONES, scalar(3))),
    "number_of_bfloat16": (number, (ONES.bfloat16(),), (MINUS.bfloat16(),)),
    "range": (python_range, (ONES, scalar(2)), (ONES, scalar(3))),
    "halves": (halves, (ONES, whole(4, -3, 2).int()), (ONES, whole(1, -9, 3).int())),
    "selected": (selected, (ONES, whole(4, -3, 2).int()), (ONES, whole(1, -9, -3).int())),
    "length": (length_of_selection, (ONES, whole(4, -3, 2).int()), (ONES, whole(1, -9, -3).int())),
    "number_of_selected": (number_of_selected, (ONES, whole(4, -3, 2).int()), (ONES, whole(1, -9, -3).int())),
    "distinct": (distinct, (ONES, whole(4, 1, 2)), (ONES, whole(1, 2, 1))),
    "distinct_rows": (distinct_rows, (ONES, whole(4, 1, 2)), (ONES, whole(1, 2, 1))),
    "runs": (runs, (ONES, whole(4, 1, 2)), (ONES, whole(1, 1, 2))),
    "bins": (bins, (ONES, whole(4, 1, 2)), (ONES, whole(1, 1, 2))),
    "repeated": (repeated, (ONES, whole(4, 1, 2)), (ONES, whole(1, 1, 2))),
    "list": (listed, (ONES, whole(1, 0, 2)), (ONES, whole(1, 1, 2))),
    "loop": (loop_until, (RISING,), (10 * RISING,)),
    "and": (two_questions, (ONES,), (10 * ONES,)),
    "not": (negated, (0 * ONES,), (ONES,)),
    "nan": (none_is_nan, (ONES,), (NAN,)),
    "nan_in_the_example": (none_is_nan, (NAN,), (ONES,)),
    "nan_for_a_number": (number, (ONES,), (NAN,)),
    "equal": (equal, (ONES, RISING), (ONES, ONES)),
    "allclose": (all_close, (ONES, ONES), (ONES, RISING)),
    "nested": (nested, (ONES,), (torch.tensor([1.0, -1.0, 1.0]),)),
    "write": (after_a_write, (ONES,), (10 * ONES,)),
    "two_tensors": (comparison_of_two, (ONES, MINUS), (MINUS, ONES)),
    "two_numbers": (comparison_of_numbers, (RISING, ONES), (ONES, ONES)),
    "quotient": (divided, (ONES, scalar(3)), (ONES, scalar(4))),
    "distinct_numbers": (distinct_numbers, (ONES, whole(1, 2, 2)), (ONES, whole(1, 2, 3))),
    "named": (named, (ONES, whole(1, 2)), (ONES, whole(1, 0))),
    "bool": (boolean_input, (ONES, scalar(True)), (ONES, scalar(False))),
    "int": (integer_input, (ONES, scalar(3)), (ONES, scalar(4))),
    "remainder": (integer_number, (ONES, scalar(3)), (ONES, scalar(4))),
    "bits": (odd, (ONES, scalar(3)), (ONES, scalar(4))),
    "positions": (listed_positions, (RISING, RISING > 1), (RISING, RISING > 2)),
    "tolist": (listed_rows, (RISING, RISING > 1), (RISING, RISING < 3)),
    "where": (listed_numbers, (RISING, RISING > 1), (RISING, RISING < 3)),
    "pairs": (pairs, (RISING, whole(1, 2, 4)), (RISING, whole(1, 1, 1))),
    "mask_and_numbers": (mask_and_numbers, (RISING, whole(0, 2, 1)), (MINUS, whole(0, 2, 1))),
    "int8": (narrow_integer, (ONES, scalar(3).to(torch.int16)), (ONES, scalar(1001).to(torch.int16))),
    "float": (float_of, (RISING,), (ONES,)),
    "min": (min_of_numbers, (ONES, whole(3, 4)), (ONES, whole(3, 2))),
    "is_nonzero": (is_nonzero, (ONES,), (0 * ONES,)),
    "in": (membership, (ONES, whole(1, 3)), (ONES, whole(1, 4))),
    "next": (generator, (torch.tensor([-1.0, 1.0, 1.0]),), (ONES,)),
    "none": (generator, (MINUS,), (ONES,)),
    "sorted": (sorted_input, (RISING,), (FALLING,)),
    "distribution": (checked_by_torch, (ONES, ONES), (ONES, MINUS)),
    "mask": (padding, (ONES, RISING > 0), (ONES, RISING > 1)),
}
