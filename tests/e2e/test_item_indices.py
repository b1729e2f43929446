"""Indices that are computed from items or listed: negative ones, and those that eager PyTorch refuses."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fx_importer import ExportError, UsageError, lower
from fx_importer.errors import AssumptionError

X = torch.arange(15.0).reshape(5, 3) + 1
ALL = ("linalg", "tosa", "stablehlo")


def write_at_item(x: Tensor, k: Any) -> Tensor:
    x = x.clone()
    x[k.item()] = 9.0
    return x


def write_at_tensor(x: Tensor, k: Any) -> Tensor:
    x = x.clone()
    x[k], x[..., k - 1, None] = 9, x[0, :1]
    return x


def write_at_item_and_list(x: Tensor, k: Any) -> Tensor:
    x = x.clone()
    x[[0, 3], k] = torch.tensor([8.0, 9.0])
    x[k, torch.tensor([1, 0])] += 1
    return x


def write_at_item_and_mask(x: Tensor, k: Any) -> Tensor:
    x = x.clone()
    x[x[:, 0] > 4, k] = 9.0
    x[None, k, 1:, None] = x[1, 2]
    return x


def read_at_item_and_list(x: Tensor, k: Any) -> Tensor:
    return x.view(5, 1, 3)[[0, 2], :, k] * 2


def read_at_item_and_mask(x: Tensor, k: Any) -> Tensor:
    return x[k, x[1] > 4].sum()


def write_at_items(x: Tensor, k: Any) -> Tensor:
    x = x.clone()
    x[:, k.item()] += 3
    x[k.item(), 1:] = x[0, 0]
    x[..., k.item(), None] *= 2
    x[k.item(), k.item()] = 1
    return x


def write_at_list_of_items(x: Tensor, k: Any) -> Tensor:
    x = x.clone()
    x[[k.item(), 2], [0, k - 1]] = 9
    x[k.item(), x[0] > 1] = 8
    return x + x[[k.item(), -1]].sum(0)


def read_at_item(x: Tensor, k: Any) -> Tensor:
    return x[:, k.item()]


def select_scatter(x: Tensor, k: Any) -> Tensor:
    return x.select_scatter(x[0], 0, k.item())


def narrow(x: Tensor, k: Any) -> Tensor:
    return x.narrow(0, k.item(), 2) * 2


def write_narrowed(x: Tensor, k: Any) -> Tensor:
    x = x.clone()
    view = x.narrow(0, k.item(), 2)
    x[:, 0].mul_(3)
    view.mul_(2)
    x.narrow(0, k.item(), 2).copy_(x[:2] + 1)
    return x


def roll(x: Tensor, k: Any) -> Tensor:
    return x.roll(k.item(), 0)


def index_fill(x: Tensor, k: Any) -> Tensor:
    return x.index_fill(0, k.reshape(1), 7)


@pytest.mark.parametrize("output_type", ALL)
@pytest.mark.parametrize(
    ("function", "accepted", "refused"),
    [
        (read_at_item, (2, 0, -1, -3), (3, -4)),
        (write_at_item, (1, -1, -5, 4), (-6, 5)),
        (write_at_tensor, (1, -1, 3, -2), (-6, 5, 4, -3)),
        (write_at_item_and_list, (1, 0, -1, -3), (3, -4)),
        (write_at_item_and_mask, (1, 0, -1, -3), (3, -4)),
        (write_at_items, (1, 0, -1, -3), (3, -4)),
        (read_at_item_and_list, (1, 0, -1, -3), (3, -4)),
        (read_at_item_and_mask, (1, 0, -1, -5), (5, -6)),
        (select_scatter, (2, -5, 4), (-6, 5)),
        (narrow, (2, 0, 3, -2, -5), (-1, 4, -6)),
        (write_narrowed, (2, 0, 3, -2, -5), (-1, 4, -6)),
        (roll, (2, -2, 7, 0), ()),
        (index_fill, (1, -1, -5), ()),
    ],
)
@pytest.mark.filterwarnings("ignore::fx_importer.errors.AssumptionWarning")
def test_slices_at_items(function, accepted, refused, output_type):
    lowered = lower(function, X, torch.tensor(accepted[0]), output_type=output_type)
    for number in accepted:
        torch.testing.assert_close(lowered.run(X, torch.tensor(number)), function(X, torch.tensor(number)))
    for number in refused:
        with pytest.raises((IndexError, RuntimeError)):
            function(X, torch.tensor(number))
        with pytest.raises(AssumptionError, match=r"\.item|\bk\b"):
            lowered.run(X, torch.tensor(number))


def read_and_write(x: Tensor, k: Any) -> tuple[Tensor, ...]:
    row, x = x[k.item()], x.clone()
    x[k] = 9
    return row, x


@pytest.mark.parametrize("output_type", ALL)
def test_lists_of_items(output_type):
    lowered = lower(write_at_list_of_items, X, torch.tensor(1), output_type=output_type)
    for number in map(torch.tensor, (1, 0, 3, -1)):
        torch.testing.assert_close(lowered.run(X, number), write_at_list_of_items(X, number))


@pytest.mark.parametrize("output_type", ["linalg", "stablehlo"])
def test_writes_at_sizes(output_type):
    def write(x, y):
        x = x.clone()
        x[:, y.shape[0] - 2] = y[0]
        return x + x[[y.shape[0] - 1, 0]].sum(0)

    dynamic = (None, {0: torch.export.Dim.DYNAMIC})
    lowered = lower(write, X, X[:3, 0], output_type=output_type, dynamic_shapes=dynamic)
    for size in (2, 3, 4):
        torch.testing.assert_close(lowered.run(X, X[:size, 0]), write(X, X[:size, 0]))


@pytest.mark.parametrize("output_type", ALL)
def test_items_along_a_dynamic_axis(output_type):
    sizes = ({0: torch.export.Dim.DYNAMIC}, None)
    caller = lower(read_and_write, X, torch.tensor(1), output_type=output_type, dynamic_shapes=sizes).caller(
        backend="jit"
    )
    for number in (1, -1, 0, -2):
        torch.testing.assert_close(caller(X[:2], torch.tensor(number)), read_and_write(X[:2], torch.tensor(number)))
    for number in (2, -3):
        with pytest.raises(AssumptionError, match="k.item"):
            caller(X[:2], torch.tensor(number))


class RingBuffer(torch.nn.Module):
    """The last rows, written at a counter."""

    def __init__(self):
        super().__init__()
        self.rows: Tensor
        self.count: Tensor
        self.register_buffer("rows", torch.zeros(3, 2))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x):
        self.rows[self.count % 3] = x
        self.count.add_(1)
        return self.rows.sum(0)


@pytest.mark.parametrize("output_type", ALL)
def test_ring_buffer_over_calls(output_type):
    caller = lower(RingBuffer(), X[0, :2], output_type=output_type, mutation="functional").caller(backend="jit")
    model = RingBuffer()
    for row in X[:, :2]:
        torch.testing.assert_close(caller(row), model(row))


def test_negation_of_int64_in_tosa():
    k = torch.tensor([[3, -(2**40)]])
    torch.testing.assert_close(lower(torch.neg, k, output_type="tosa").caller(backend="jit")(k), -k)


@pytest.mark.parametrize(
    ("function", "accepted", "refused"),
    [
        (lambda x, k: x.index_add(0, k, x[:2]), ([1, 1], [4, 0]), ([-1, 0], [5, 0])),
        (lambda x, k: x.index_add(1, k, x[:, :2], alpha=2), ([1, 1], [2, 0]), ([-1, 0], [3, 0])),
        (lambda x, k: x.index_fill(1, k, 7.0), ([1, -1], [-3, 0]), ([-4, 0], [3, 0])),
        (lambda x, k: F.max_unpool1d(x[:2, :1, None], k.view(2, 1, 1), [2]), ([1, 0], [1, 1]), ([2, 0], [0, -1])),
        (lambda x, k: F.max_unpool2d(x[None, :2, :1, None], k.view(1, 2, 1, 1), [2, 2]), ([3, 0],), ([4, 0], [0, -1])),
        (
            lambda x, k: F.max_unpool3d(x[:2, :1, None, None], k.view(2, 1, 1, 1), [2, 2, 2]),
            ([7, 0],),
            ([8, 0], [0, -1]),
        ),
    ],
)
def test_listed_indices(function, accepted, refused):
    lowered = lower(function, X, torch.tensor(accepted[0]), output_type="linalg")
    for indices in map(torch.tensor, accepted):
        torch.testing.assert_close(lowered.run(X, indices), function(X, indices))
    for indices in map(torch.tensor, refused):
        with pytest.raises((IndexError, RuntimeError)):
            function(X, indices)
        with pytest.raises(UsageError, match="an index is out of range"):
            lowered.run(X, indices)


def test_classes_are_checked():
    sizes = ({0: torch.export.Dim.DYNAMIC},)
    caller = lower(lambda k: F.one_hot(k, 3), torch.tensor([2, 0]), output_type="linalg", dynamic_shapes=sizes).caller()
    for classes in ([0, 1, 2], [2], []):
        tensor = torch.tensor(classes, dtype=torch.int64)
        torch.testing.assert_close(caller(tensor), F.one_hot(tensor, 3))
    for classes in ([3], [1, -1]):
        with pytest.raises(AssumptionError, match="0 <= class < 3"):
            caller(torch.tensor(classes))


def test_index_add_of_another_shape_is_refused():
    with pytest.raises(ExportError, match="source tensor shape must match"):
        lower(lambda x, k: x[0, 0].index_add(0, k, x[0, :1]), X, torch.tensor([0]), output_type="tosa")


@pytest.mark.parametrize(
    ("function", "accepted", "refused"),
    [
        (lambda x, k: x.repeat_interleave(k, 0), ([1, 2, 0, 1, 1], [0] * 5), ([-1, 2, 1, 1, 1],)),
        (
            lambda x, k: x.repeat_interleave(k, 0, output_size=5),
            ([1, 2, 0, 1, 1], [1] * 5),
            ([-1, 3, 1, 1, 1], [0] * 5, [1, 3, 1, 1, 1]),
        ),
        (
            lambda x, k: x.index_put((k.nonzero()[:, 0],), x[:3]),
            ([1, 0, 1, 0, 1], [1, 1, 1, 0, 0]),
            ([1] * 5, [0] * 5),
        ),
        (
            lambda x, k: x.index_put((k.nonzero()[:, 0],), x[k < 1]),
            ([1, 2, 0, 0], [0, 1, 0, 1]),
            ([1, 0, 0, 0], [0, 0, 0, 0]),
        ),
        (
            lambda x, k: x.index_put((torch.arange(k.sum().item()),), x[:3]),
            ([1, 0, 1, 0, 1],),
            ([1, 1, 0, 0, 0], [0] * 5),
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::fx_importer.errors.AssumptionWarning")
def test_numbers_of_repeats_and_values(function, accepted, refused):
    x = X[: len(accepted[0])]
    lowered = lower(function, x, torch.tensor(accepted[0]), output_type="linalg")
    for numbers in accepted:
        torch.testing.assert_close(lowered.run(x, torch.tensor(numbers)), function(x, torch.tensor(numbers)))
    for numbers in refused:
        with pytest.raises(RuntimeError):
            function(x, torch.tensor(numbers))
        with pytest.raises(AssumptionError):
            lowered.run(x, torch.tensor(numbers))


def test_an_offset_that_is_read_keeps_the_view():
    def offset(x, k):
        narrowed = x.narrow(0, k.item(), 2)
        return narrowed + narrowed.storage_offset()

    with pytest.raises(ExportError, match="no rule counts it"):
        lower(offset, X, torch.tensor(1), output_type="linalg")


@pytest.mark.parametrize("output_type", ALL)
def test_gradients_at_items(output_type):
    def loss(x, k):
        return (x[k.item()] * x[:, k].sum()).square().sum() + x.narrow(0, k.item(), 1).sum()

    numbers = [torch.tensor(number) for number in (1, 0, -1)]
    caller = lower(loss, X.clone().requires_grad_(), numbers[0], output_type=output_type, gradients=True).caller()
    for k in numbers:
        x = X.clone().requires_grad_()
        expected = loss(x, k)
        expected.backward()
        torch.testing.assert_close(caller(X, k), expected.detach())
        torch.testing.assert_close(caller.gradients["x"], x.grad)
    with pytest.raises(AssumptionError):
        caller(X, torch.tensor(9))


def test_gradients_that_torch_does_not_trace_are_an_export_error():
    with pytest.raises(ExportError, match="torch traces no gradients of this program"):
        lower(lambda x: x[x > 0].cumsum(0).sum(), X.clone().requires_grad_(), gradients=True)
