"""Writes and reads at boolean masks of any axes, empty, partial and full, in every output type against eager."""

import importlib.util

import pytest
import torch
from torch.export import Dim

from fx_importer import lower
from tests.e2e.harness import LINALG, STABLEHLO, TOSA, assert_same, normal

ROWS = [torch.tensor(mask) for mask in ([True, False, True], [False] * 3, [True] * 3, [False, True, False])]
COLUMNS = [torch.tensor(mask) for mask in ([True, False, True, False], [False] * 4, [True, True, True, False])]
OUTPUT_TYPES = pytest.mark.parametrize("output_type", [LINALG, STABLEHLO, TOSA], ids=lambda each: each.value)
put = torch.ops.aten.index_put


def by_one_mask(x, rows, columns, row):
    """``x`` is [3, 4, 2]; the values are a scalar, one slice, and a slice for each place of the axis before."""
    zeroed, written = x.clone(), x.clone()
    zeroed[:, columns] = 0
    written[..., rows[:2]] = 1
    return zeroed, written, put(x, [None, columns], row, True), put(x, [rows], x[:1]), put(x, [None, columns], x[:, :1])


def by_several_indices(x, rows, columns, row):
    """``rows`` picks as many elements as ``columns``, or one of both does."""
    last = torch.tensor([-1])
    return (
        put(x, [rows, columns], row),
        put(x, [rows, columns], row, True),
        put(x, [rows, None, row[:1].long()], x[0, 0, 0]),
        put(x, [last, columns], row),
        put(x, [torch.tensor([[1], [0]]), columns], row, True),
    )


@pytest.mark.in_turn("output_type")
@OUTPUT_TYPES
@pytest.mark.parametrize("function", [by_one_mask, by_several_indices])
def test_writes(function, output_type):
    x = normal(3, 4, 2)
    inputs = [(x, rows, columns, x[0, 0]) for rows, columns in zip(ROWS, COLUMNS, strict=False)]
    lowered = lower(function, *inputs[0], output_type=output_type)
    for given in inputs:
        if function is by_one_mask or given[1].sum() in (1, given[2].sum()):
            assert_same(lowered.run(*given), function(*given), None)


@OUTPUT_TYPES
def test_writes_of_every_dtype(output_type):
    dtypes = [torch.bool, torch.int8, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16]
    dtypes += [] if output_type is TOSA else [torch.float64]

    def write(rows, columns, *tensors):
        return [
            result
            for x in tensors
            for result in (put(x, [None, columns], x[:, :1], True), put(x, [rows, columns], x[0, :2]))
        ]

    tensors = [(normal(3, 4) * 3).to(dtype) for dtype in dtypes]
    lowered = lower(write, ROWS[0], COLUMNS[0], *tensors, output_type=output_type)
    for rows, columns in ((ROWS[0], COLUMNS[0]), (ROWS[3], COLUMNS[0])):
        assert_same(lowered.run(rows, columns, *tensors), write(rows, columns, *tensors), None)


@pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="the extra 'xla' is not installed")
def test_writes_on_xla():
    x = normal(3, 4, 2)
    lowered = lower(by_several_indices, x, ROWS[0], COLUMNS[0], x[0, 0], output_type=STABLEHLO)
    run = lowered.caller(backend="xla")
    for rows, columns in zip(ROWS[:2], COLUMNS[:2], strict=True):
        assert_same(run(x, rows, columns, x[0, 0]), by_several_indices(x, rows, columns, x[0, 0]), None)


@OUTPUT_TYPES
def test_writes_of_a_dynamic_number_of_values(output_type):
    def write(x, columns, rows, values):
        return put(x, [None, columns], values), put(x, [rows, columns], values[0]), x.masked_scatter(rows[:, None], x)

    number = {1: Dim("number", min=0, max=9)}
    x = normal(3, 4)
    inputs = [(x, columns, rows, normal(3, int(columns.sum()))) for columns, rows in zip(COLUMNS, ROWS, strict=False)]
    lowered = lower(write, *inputs[0], output_type=output_type, dynamic_shapes=(None, None, None, number))
    for given in inputs[::2] if output_type is TOSA else inputs:  # TOSA has no empty tensors
        assert_same(lowered.run(*given), write(*given), None)


def test_updates_of_selected_elements():
    def update(x):
        y, z = x.clone(), x.clone()
        y[y > 0.5] = 0.5 - y[y > 0.5] * 2
        high = x[0] > 0
        z[:, high] += z[:, high]
        z[x[:, 0] > 0, 1] -= 1
        return y, z, x.masked_scatter(x > 0, x.masked_select(x > 0) + 1)

    lowered = lower(update, normal(3, 4), output_type=LINALG)
    for x in (normal(3, 4), -torch.ones(3, 4), torch.ones(3, 4)):
        assert_same(lowered.run(x), update(x), None)


def at_rows(x):
    """Write at the rows whose first element is positive: an expert's tokens, of which there may be none."""
    rows = torch.where(x[:, 0] > 0)[0]
    picked = x[rows] * 2
    added, copied = x.index_add(0, rows, picked, alpha=3), x.index_copy(0, rows, picked)
    return added, copied, put(x, [rows - 3], picked), put(x, [rows], picked, True), x.t().index_add(1, rows, picked.t())


@pytest.mark.slow_rows("int64")
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_rows_that_depend_on_values(dtype):
    some = torch.tensor([[1, 2], [-1, 3], [4, 5]], dtype=dtype)
    lowered = lower(at_rows, some, output_type=LINALG)
    for x in (some, -some.abs(), some.abs()):
        assert_same(lowered.run(x), at_rows(x), None)


def filled_rows(x):
    """Fill the rows whose first element is positive, and all elements of one column of these."""
    rows = torch.where(x[:, 0] > 0)[0]
    return x.index_fill(0, rows, 7), x.t().index_fill(1, rows, x[0, 0]), x[:, 1].index_fill(0, rows, -1)


@pytest.mark.in_turn("output_type")
@OUTPUT_TYPES
def test_rows_that_depend_on_values_are_filled(output_type):
    some = torch.tensor([[1.0, 2], [-1, 3], [4, 5]])
    lowered = lower(filled_rows, some, output_type=output_type)
    for x in (some, -some.abs(), some.abs()):
        assert_same(lowered.run(x), filled_rows(x), None)


def weighted_self_loops(edges, scale):
    """One self-loop a node in place of those of the graph: the sum asserts that there are as many as nodes."""
    edges = edges[:, edges[0] != edges[1]]
    nodes = torch.arange(3)
    row, column = torch.cat([edges, torch.stack([nodes, nodes])], 1)
    weight = scale[column] * 2
    weight[row == column] += scale
    return torch.zeros(3).index_add(0, column, weight)


@pytest.mark.in_turn("output_type")
@OUTPUT_TYPES
def test_elements_of_a_known_number_among_selected_ones(output_type):
    first = torch.tensor([[0, 1, 1, 2], [1, 1, 2, 2]])
    lowered = lower(weighted_self_loops, first, normal(3), output_type=output_type, capture="assume")
    for edges in (first, torch.tensor([[0, 0, 0, 0], [0, 0, 0, 0]]), torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])):
        scale = normal(3)
        assert_same(lowered.run(edges, scale), weighted_self_loops(edges, scale), None)


def batched_and_back(x, batch):
    """Attend in a padded batch of two graphs of at most four nodes, and return to the list of nodes, as GPS does."""
    first = torch.zeros(2, dtype=torch.int64).index_add(0, batch + 1 - batch.max(), torch.ones_like(batch))[0]
    place = torch.arange(x.shape[0]) - batch * first
    padded = torch.zeros(2, 4, 3).index_put((batch, place), x)
    mask = torch.zeros(2, 4, dtype=torch.bool).index_put((batch, place), torch.tensor(True))
    return x + (padded * 2)[mask]


@pytest.mark.in_turn("output_type")
@OUTPUT_TYPES
def test_a_mask_of_two_axes_with_a_known_number(output_type):
    x, batch = normal(5, 3), torch.tensor([0, 0, 1, 1, 1])
    lowered = lower(batched_and_back, x, batch, output_type=output_type, capture="assume")
    for other in (batch, torch.tensor([0, 1, 1, 1, 1]), torch.tensor([0, 0, 0, 0, 1])):
        assert_same(lowered.run(x, other), batched_and_back(x, other), None)


@pytest.mark.slow_rows("stablehlo")
@pytest.mark.parametrize("output_type", [LINALG, STABLEHLO, TOSA], ids=lambda each: each.value)
def test_addition_of_no_rows(output_type):
    x, index, rows = normal(3, 2), torch.zeros(0, dtype=torch.int64), torch.zeros(0, 2)
    assert_same(
        lower(lambda x, i, s: x.index_add(0, i, s), x, index, rows, output_type=output_type).run(x, index, rows),
        x,
        None,
    )


def coupling_layer(x):
    """One layer of a normalizing flow: columns at a constant mask and at constant indices, read and written."""
    mask, order = COLUMNS[0], torch.tensor([3, -3])
    z, out = x.clone(), torch.empty_like(x)
    z[:, mask] = 0
    z[:, mask] += torch.tanh(z[:, ~mask])
    out[:, mask] = z[:, mask]
    out[:, order] = x[:, order] * 2
    return out, z


def written_slices(x):
    """Slices of a batch, or of another axis of its elements."""
    rows, columns, inner = x.clone(), x.clone(), x.clone()
    rows[1:, 0] = 2
    rows[-2:] += 1
    rows[:-1] = x[1:]
    columns[:, 1:3] = x[0, :2]
    inner[:, 1:][:, 1:] *= 3
    return rows, columns, inner


@pytest.mark.slow_rows("^written_slices-(tosa|stablehlo)$")
@OUTPUT_TYPES
@pytest.mark.parametrize("function", [coupling_layer, written_slices])
def test_writes_at_constants_with_a_dynamic_batch(function, output_type):
    lowered = lower(function, normal(5, 4), output_type=output_type, dynamic_shapes=({0: Dim("n", min=3)},))
    for rows in (3, 7):
        assert_same(lowered.run(normal(rows, 4)), function(normal(rows, 4)), None)


def masks_with_labels(x, rows, labels):
    """A mask next to indices that it selects: reads, writes, and in-place updates."""
    zeroed, margin = x.clone(), x.clone()
    zeroed[rows, labels[rows]] = 0
    margin[rows, labels[rows]] -= 0.5
    added = put(x, [rows, labels[rows]], x[rows, labels[rows]], True)
    return x[rows, labels[rows]].sum(), zeroed, margin, added


@OUTPUT_TYPES
def test_masks_with_labels(output_type):
    labels = torch.tensor([1, -1, 0])
    shapes = ({0: Dim("n", min=2)}, {0: Dim("n", min=2)}, {0: Dim("n", min=2)})
    x = normal(3, 4)
    lowered = lower(masks_with_labels, x, ROWS[0], labels, output_type=output_type, dynamic_shapes=shapes)
    for rows in ROWS:
        assert_same(lowered.run(x, rows, labels), masks_with_labels(x, rows, labels), None)


def changed_masks_with_labels(x, rows, labels):
    """The same masks, which the function writes to before, between and after, also through a view."""
    mask, y = rows.clone(), x.clone()
    read = x[mask, labels[mask]].sum()
    mask[:2].logical_not_()
    y[mask, labels[mask]] = 5
    listed = mask.nonzero().sum()
    mask.fill_(True)
    y[mask, labels[mask]] += 1
    return read, y, listed, mask


@pytest.mark.in_turn("output_type")
@OUTPUT_TYPES
def test_changed_masks_with_labels(output_type):
    x, labels = normal(3, 4), torch.tensor([1, 2, 0])
    lowered = lower(changed_masks_with_labels, x, ROWS[0], labels, output_type=output_type)
    for rows in ROWS:
        assert_same(lowered.run(x, rows, labels), changed_masks_with_labels(x, rows, labels), None)


def test_selected_labels_are_a_result_in_linalg():
    lowered = lower(
        lambda x, rows, labels: x[rows, labels[rows]],
        normal(3, 4),
        ROWS[0],
        torch.tensor([1, -1, 0]),
        output_type=LINALG,
    )
    for rows in ROWS:
        x, labels = normal(3, 4), torch.tensor([1, -1, 0])
        assert_same(lowered.run(x, rows, labels), x[rows, labels[rows]], None)


def test_in_place_power_among_selections():
    """The overload of the functional operator has another name: pow_.Scalar, pow.Tensor_Scalar."""

    def normalized(x, n):
        return x * torch.zeros(4).index_add_(0, n[n > 0], torch.ones(4)[n > 0]).add_(1).pow_(-0.5)

    inputs = torch.arange(4.0), torch.tensor([1, 0, 3, 3])
    lowered = lower(normalized, *inputs, output_type="stablehlo")
    torch.testing.assert_close(lowered.run(*inputs), normalized(*inputs))
