"""Writes at indices in TOSA, on Arm's reference model against eager: duplicates, masks, axes, and accumulation."""

import importlib.util

import pytest
import torch

from fx_importer import lower
from tests.e2e.harness import assert_same, integers, normal

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tosa_reference_model") is None, reason="the extra 'tosa' is not installed"
)

X = normal(4, 5, 6)
MASK = torch.tensor([True, False, True, True])
COLUMNS = torch.tensor([True, True, False, True, False])


def places(*shape, size, dtype=torch.int64):
    return integers(*shape, low=-size, high=size, dtype=dtype, seed=sum(shape))


INDEX_PUT = {
    "more updates than rows, with duplicates": (X, [places(20, size=4)], normal(20, 5, 6)),
    "scalar index": (X, [torch.tensor(-2)], normal(5, 6)),
    "several axes": (X, [places(9, size=4), places(9, size=5), places(9, size=6)], normal(9)),
    "broadcast indices": (X, [places(3, 1, size=4), places(1, 2, size=5)], normal(3, 2, 6)),
    "a middle axis, int32": (X, [None, places(2, 3, size=5, dtype=torch.int32)], normal(4, 2, 3, 6)),
    "axes apart": (X, [places(3, size=4), None, places(3, size=6)], normal(3, 5)),
    "rank six": (normal(2, 3, 2, 3, 2, 2), [None, None, places(5, size=2)], normal(2, 3, 5, 3, 2, 2)),
    "broadcast values": (X, [None, None, places(8, size=6)], normal(1, 8)),
    "mask": (X, [MASK], normal(3, 5, 6)),
    "mask of a later axis": (X, [None, COLUMNS], normal(4, 3, 6)),
    "mask of two axes": (X, [X[..., 0] > 0], torch.tensor(7.0)),
    "mask and index": (X, [MASK, places(3, size=5)], normal(3, 6)),
    "mask, axis, index": (X, [MASK, None, torch.tensor([-1])], normal(3, 5)),
    "two masks": (X, [MASK, COLUMNS], normal(3, 6)),
    "int64": (X.mul(9).long(), [places(20, size=4)], normal(20, 5, 6).mul(9).long()),
    "int8": (X.mul(9).to(torch.int8), [places(20, size=4)], normal(20, 5, 6).mul(9).to(torch.int8)),
    "bool": (X > 0, [places(20, size=4)], normal(20, 5, 6) > 0),
    "float16": (X.half(), [places(3, size=4)], normal(3, 5, 6).half()),
    "infinities": (X[0, 0], [places(4, size=6)], torch.tensor([torch.inf, -torch.inf, torch.nan, 1])),
}


class Writes(torch.nn.Module):
    def __init__(self, indices):
        super().__init__()
        self.indices = indices

    def forward(self, x, values, *given):
        rest = iter(given)
        indices = [None if each is None else next(rest) for each in self.indices]
        write = torch.ops.aten.index_put
        return write(x, indices, values), write(x, indices, values, True)


@pytest.mark.slow_rows(
    "^a middle axis, int32$",
    "^two masks$",
    "^axes apart$",
    "^several axes$",
    "^mask and index$",
    "^infinities$",
    "^broadcast values$",
    "^more updates than rows, with duplicates$",
    "^mask, axis, index$",
    "^broadcast indices$",
    "^rank six$",
    "^(float16|int8)$",
)
@pytest.mark.parametrize("name", INDEX_PUT)
def test_index_put(name):
    x, indices, values = INDEX_PUT[name]
    inputs = (x, values, *(each for each in indices if each is not None))
    lowered = lower(Writes(indices), *inputs, output_type="tosa")
    assert "tosa.scatter" not in str(lowered.module)
    assert_same(lowered.run(*inputs), Writes(indices)(*inputs), (1e-3 if x.dtype == torch.float16 else 1e-5, 1e-5))


def scatters(x, index, source):
    return (
        *(x.scatter(1, index, source), x.scatter(1, index, 3), x.scatter_add(1, index, source)),
        *(
            x.scatter_reduce(1, index, source, kind, include_self=own)
            for kind in ("sum", "prod", "mean", "amax", "amin")
            for own in (True, False)
        ),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_scatter(dtype):
    x, source = normal(3, 4).mul(3).to(dtype), normal(2, 9).mul(3).to(dtype)
    inputs = (x, integers(2, 9, low=0, high=4), source)
    assert_same(lower(scatters, *inputs, output_type="tosa").run(*inputs), scatters(*inputs), None)


def test_scatter_of_bools():
    def program(x, index, source):
        return x.scatter(0, index, source), x.scatter(0, index, False)

    inputs = (normal(6) > 0, integers(9, low=0, high=6), normal(9) > 0)
    assert_same(lower(program, *inputs, output_type="tosa").run(*inputs), program(*inputs), None)


def test_index_put_impl():
    def program(x, index, values):
        accumulated = torch.ops.aten._index_put_impl_(x.clone(), [index], values, True, True)
        return accumulated, torch.ops.aten._index_put_impl_(x.clone(), [index], values)

    inputs = (X, places(20, size=4), normal(20, 5, 6))
    assert_same(lower(program, *inputs, output_type="tosa").run(*inputs), program(*inputs), (1e-5, 1e-5))


def test_writes_beyond_the_range_are_left_out():
    def write(x, index, values):
        return x.index_put((index,), values), x.index_put((index, index), values[:, 0, :], accumulate=True)

    lowered = lower(write, X, torch.tensor([0, 1, 2, 3]), normal(4, 5, 6), output_type="tosa")
    index, values = torch.tensor([-5, -4, 4, 10**12]), normal(4, 5, 6)
    kept = index[1:2], values[1:2]
    for ours, eager in zip(lowered.run(X, index, values), write(X, *kept), strict=True):
        assert_same(ours, eager, (1e-6, 1e-6))
