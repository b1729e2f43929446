"""Calls like an earlier one skip its checks; every other call is checked again."""

import threading

import pytest
import torch

from fx_importer import lower
from fx_importer.calls.recurring_calls import RecurringCall
from fx_importer.errors import UsageError

X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    "other",
    [
        X.double(),
        X.int(),
        X[:, :2],
        X.t(),
        X.reshape(6),
        X.expand(1, 2, 3),
        X.to_sparse(),
        X.to("meta"),
        torch.complex(X, X).conj().imag,
        3.0,
        None,
        [X],
    ],
    ids=lambda each: str(getattr(each, "dtype", each)) + str(getattr(each, "shape", "")),
)
def test_recognizes_only_tensors_of_the_same_metadata(other):
    call = RecurringCall(2)
    assert not call.matches((X, X))
    call.accept((X, X))
    assert call.matches((X.clone(), torch.ones(2, 3)))
    assert not call.matches((X, other))
    assert not call.matches((X,))
    call.forget()
    assert not call.matches((X, X))


@pytest.fixture(scope="module")
def doubled():
    sizes = {0: torch.export.Dim("n")}
    return lower(lambda x: x * 2, X, output_type="linalg-on-tensors", dynamic_shapes=(sizes,)).caller()


def test_calls_in_turns(doubled):
    inputs = (X, X[:1], X, torch.ones(3, 2).t(), X, X.clone().requires_grad_(), X[:0], X)
    kept = [(each, doubled(each)) for each in inputs * 2]
    for x, result in kept:
        torch.testing.assert_close(result, (x * 2).detach())
    assert len({result.data_ptr() for x, result in kept if x.numel()}) == 14


def test_wrong_calls_between(doubled):
    for wrong, message in ((X.double(), "float64"), (X.reshape(3, 2), "shape"), (X.reshape(6), "shape")):
        torch.testing.assert_close(doubled(X), X * 2)
        with pytest.raises(UsageError, match=message):
            doubled(wrong)
        torch.testing.assert_close(doubled(X), X * 2)


def test_threads_with_other_sizes(doubled):
    wrong = []

    def repeat(rows):
        x = torch.randn(rows, 3)
        wrong.extend(rows for _ in range(200) if not torch.equal(doubled(x), x * 2))

    threads = [threading.Thread(target=repeat, args=(rows,)) for rows in (2, 3, 50)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_modes_of_the_thread(doubled):
    for mode in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu")):
        with mode:
            torch.testing.assert_close(doubled(X), X * 2)
        torch.testing.assert_close(doubled(X), X * 2)


def test_keywords_in_any_order():
    def subtract(x, y):
        return x - y

    call = lower(subtract, kwargs={"x": X, "y": X + 1}, output_type="linalg-on-tensors").caller()
    for _ in range(2):
        torch.testing.assert_close(call(y=X, x=3 * X), 2 * X)
    with pytest.raises(UsageError, match="'z'"):
        call(x=X, z=X)
