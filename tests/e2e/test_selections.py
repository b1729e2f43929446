"""Elements selected by masks, computed with and written back, in output types without data-dependent sizes."""

import pytest
import torch
from torch.export import Dim
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from fx_importer import StageFailed, lower
from fx_importer.errors import AssumptionError
from fx_importer.manifest import Manifest
from tests.e2e.harness import STABLEHLO, TOSA, assert_same, normal

MASKS = [torch.tensor(mask) for mask in ([True, False, True, False, True], [False] * 5, [True] * 5)]
WEIGHT, LABELS = normal(4, 4), torch.tensor([1, 0, -100, 2, 0])


def updates(x, rows):
    """Read-modify-writes at masks of leading, trailing and all axes."""
    a, b, c, d = x.clone(), x.clone(), x.clone(), x.clone()
    columns = x[0] > 0
    a[..., columns] += 1
    a[:, columns] *= torch.arange(5.0)[:, None]
    b[b > 0] = torch.log(b[b > 0]) - b[b > 0].mean()
    c[rows, 1] -= c[rows, 0]
    d[rows & (x[:, 1] > 0)] = d[rows & (x[:, 1] > 0)] / 2
    return a, b, c, d, x.masked_scatter(x > 0, x.masked_select(x > 0) + 1)


def experts(x, rows):
    """Tokens of experts: linear layers, norms and attention of selected rows."""
    out = torch.zeros_like(x)
    index = torch.where(rows)[0]
    out[rows] += torch.relu(F.linear(x[rows], WEIGHT)) @ WEIGHT
    out.index_add_(0, index, F.layer_norm(x[index], (4,)) * 0.5)
    some = x[~rows]
    out[~rows] = torch.softmax(some @ some.t(), -1) @ some
    out = out.scatter(0, index[:, None], 2.0).scatter_add(0, index[:, None], x[index])
    return out, torch.zeros(5, 4).index_copy(0, index, x[index]), x.index_put((torch.flip(rows, [0]),), x[rows])


def statistics(x, rows):
    """Reductions and losses of selected elements, and their number."""
    y, labels = x[rows], LABELS.clamp(min=0)
    kept = y[y[:, 0] > 0]
    mean = y.sum() / y.shape[0]
    losses = F.cross_entropy(y, labels[rows]), F.mse_loss(y, y * 2), kept.sum()
    medians = y[:, 0].median(), y[:, 1].nanmedian()
    return mean, y.mean(0), y.var(0), y.std(1).sum(), (y > 0).any(), *losses, x[rows, labels[rows]].sum(), *medians


def integers(x, rows):
    """Integers, bools and half precision; divisors and indices that are invalid where they are not selected."""
    whole, flags, half = (x * 10).long(), x > 0, x.half()
    divisor = rows.long()[:, None] * 3
    whole[rows] = whole[rows] // divisor[rows]
    flags[rows] = ~flags[rows]
    half[rows] *= 2
    picked = torch.where(rows, LABELS.abs() % 4, -100)
    chosen = torch.zeros(5)
    chosen[rows] = x[rows].gather(1, picked[rows][:, None]).squeeze(1)
    return whole, flags, half, chosen


def several_masks(x, rows):
    """Values that one mask selects, written or selected by another; equal masks of different operators."""
    columns = x[0] > 0
    z = x.clone()
    z[rows.nonzero(), columns.nonzero().squeeze(1)] = 1.0
    added = x.index_put((rows.nonzero(), columns.nonzero().squeeze(1)), torch.tensor(2.0), accumulate=True)
    sums = x[:, columns][rows].sum(1)
    half = (x * 0 + 300).half()
    first, second = x[x[:, 0] > 0], x[x[:, 0] > 0]
    return (
        z,
        added,
        x[rows][sums > 0].sum(),
        F.mse_loss(half[rows], half[rows] * 0.5),
        (first * second).sum(),
    )


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.in_turn("output_type")
@pytest.mark.parametrize("output_type", [STABLEHLO, TOSA], ids=lambda output_type: output_type.value)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", [updates, experts, statistics, integers, several_masks])
def test_selected_elements(function, dynamic, output_type):
    x = normal(5, 4)
    shapes = ({0: Dim.AUTO}, {0: Dim.AUTO}) if dynamic else None
    lowered = lower(function, x, MASKS[0], output_type=output_type, dynamic_shapes=shapes)
    for rows in MASKS:
        assert_same(lowered.run(x, rows), function(x, rows), None)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, rows: (x[rows] * x[torch.flip(rows, [0])]).sum(),
        lambda x, rows: x[rows].gather(1, (x.abs() > 1).long()[torch.flip(rows, [0])]).sum(),
        lambda x, rows: torch.bucketize(x[:1], torch.arange(5.0)[rows]),
    ],
    ids=["two_masks", "gather", "boundaries"],
)
def test_data_dependent_sizes_that_remain_are_refused(function):
    with pytest.raises(StageFailed, match="data-dependent size"):
        lower(function, normal(5, 4), MASKS[0], output_type=STABLEHLO)


def results(x, rows):
    """Results of data-dependent size, of every kind of element and axis."""
    columns = x[0] > 0
    listed = {"places": rows.nonzero(), "rows": torch.where(rows)[0], "number": rows.sum()}
    kinds = x[rows].half(), (x * 10).long()[rows], torch.complex(x, -x)[rows], rows[rows]
    return x[rows] * 2, x[:, columns], x[rows][:, columns], x.masked_select(x > 0), listed, kinds


def distinct(x, rows):
    """Distinct elements, with their numbers and places."""
    whole = (x * 2).long()
    runs = torch.unique_consecutive(whole[:, 0], return_counts=True)
    return torch.unique(whole, return_inverse=True, return_counts=True), runs, torch.unique(rows)


def ordered(x, rows):
    """Sorts, slices and concatenations of selected elements, and elements in the order of a sort."""
    y = x[rows]
    best = y[:, 0].argsort(descending=True, stable=True)[:2]
    joined = torch.cat([x[~rows] * 2, y, x])
    steps = y[1::2], y[:-1:3] * 2, y[-3::2], y[:4:2].sum(0), y[-2:], y[:, 1]
    padded = (
        pad_sequence([y, x[~rows] * 2, y[:, 1:2].expand(-1, 4)], batch_first=True, padding_value=-1),
        pad_sequence([y, x]),
    )
    return y.sort(0), y.flip(0) * y, y[best], y[:-1], joined, joined[:, 1].sort(descending=True)[0][:3], steps, padded


def images(x, rows):
    """Convolutions, poolings, pads and resizes of selected images."""
    y = x[rows].unflatten(1, (1, 2, 2))
    convolved = (
        F.conv2d(y, WEIGHT[None, None, :3, :3], padding="same"),
        F.conv_transpose2d(y, WEIGHT[None, None, :2, :2]),
    )
    pooled = F.max_pool1d(y[:, 0], 2), F.avg_pool3d(y[:, None], (1, 2, 1)), F.interpolate(y, scale_factor=2.0)
    return *convolved, *pooled, F.pad(y, (1, 0)), F.pixel_shuffle(x[rows][..., None, None], 2), y.unfold(2, 1, 1)


def attention(x, rows):
    """Attention within selected elements, with a mask that is read at their numbers."""
    y = x[rows].unflatten(1, (2, 2))
    number = y.shape[0]
    order = torch.arange(number)
    visible = (y[..., 0] > 0)[order[:, None, None, None], torch.arange(2)] | torch.eye(2, dtype=torch.bool)
    queries = y[:, None]
    attended = F.scaled_dot_product_attention(queries, queries, queries, visible.expand(number, -1, 2, 2))
    return attended.transpose(1, 2).reshape(number, 2, 2), y[order.flip(0)] + order[:, None, None]


def edges_with_loops(x, rows):
    """Sums over selected edges and as many more as there are nodes, with weights of a computed size."""
    edges = torch.cat([(x[:, :2] > 0).long().t()[:, rows], torch.arange(2).repeat(2, 1)], 1)
    weights = torch.ones(edges.shape[1]) / edges.shape[1]
    return torch.zeros(2).scatter_add(0, edges[1], weights * x.sum(0)[edges[0]]), weights


@pytest.mark.in_turn("output_type")
@pytest.mark.slow_rows("^distinct-dynamic|^(images|attention)-")
@pytest.mark.parametrize("output_type", [STABLEHLO, TOSA], ids=lambda output_type: output_type.value)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", [results, distinct, ordered, images, attention, edges_with_loops])
def test_results_of_data_dependent_size_are_padded(function, dynamic, output_type):
    x = normal(5, 4)
    shapes = ({0: Dim("n")}, {0: Dim("n")}) if dynamic else None
    lowered = lower(function, x, MASKS[0], output_type=output_type, dynamic_shapes=shapes)
    for rows in MASKS:
        for values in (x, torch.zeros(5, 4)):
            assert_same(lowered.run(values, rows), function(values, rows), None)
    for number in (1, 3) if dynamic else ():
        arguments = x[:number], MASKS[0][:number]
        assert_same(lowered.run(*arguments), function(*arguments), None)


def least_sizes(x, rows):
    """Elements and extrema of selections of different sizes, of which eager raises without them."""
    two, one, three, columns = x[rows], x[x[:, 0] > 0], x[x[:, 1] > 0], x[:, x[0] > 0]
    return (
        two[-2],
        one[0] + one[-1],
        three.narrow(0, 1, 2),
        three.narrow(0, -3, 1),
        columns.amax(1),
        columns[:, 1:].max(),
    )


@pytest.mark.parametrize("output_type", ["stablehlo", "tosa"])
def test_parts_of_a_selection_are_checked(output_type):
    def parts(x, rows):
        first, second = x[rows].split([2, 1])
        return first * 2, second.sum(1)

    lowered = lower(parts, normal(5, 4), MASKS[0], output_type=output_type, capture="assume")
    x, three = normal(5, 4), torch.tensor([False, True, True, False, True])
    assert_same(lowered(x, three), parts(x, three), None)
    for rows in MASKS[1:]:
        with pytest.raises(AssumptionError, match="is 3, at"):
            lowered(x, rows)


@pytest.mark.slow_rows("^static")
@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo", "tosa"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_selections_that_are_too_small_are_errors(dynamic, output_type):
    shapes = ({0: Dim("n")}, {0: Dim("n")}) if dynamic else None
    lowered = lower(least_sizes, torch.ones(5, 4), MASKS[0], output_type=output_type, dynamic_shapes=shapes)
    x = normal(5, 4)
    x[:3], x[0, 1] = x[:3].abs(), -1
    x[3, 1], two = 0.5, torch.tensor([False, False, True, False, True])
    assert_same(lowered(x, two), least_sizes(x, two), None)
    few = [(x, torch.arange(5) == 3), (x - torch.tensor([9.0, 0, 0, 0]), two), (x - torch.tensor([0, 0.5, 0, 0]), two)]
    for arguments in (*few, (x - torch.tensor([[0, 0, 9, 9]] + 4 * [[0.0] * 4]), two)):
        with pytest.raises((IndexError, RuntimeError)):
            least_sizes(*arguments)
        with pytest.raises(
            AssumptionError, match=r"`size \d of aten.* >= \d, in .* is True, .* the model raises an error"
        ):
            lowered(*arguments)
    if dynamic:
        x[1], two = x[0], two[:3]
        assert_same(lowered(x[:3].abs(), ~two), least_sizes(x[:3].abs(), ~two), None)


def ranks(x, rows):
    """Extrema with their indices, and elements by rank, of selected elements."""
    y, whole = x[rows], (x.nan_to_num(0, 9, -9) * 10).long()[rows]
    extrema = y.max(0), y.min(0, keepdim=True), y.argmax(0), y[:, 1].argmin(), y.argmax(), y.aminmax(dim=0), y.aminmax()
    integers = whole.max(0), whole.argmin(0), whole.aminmax(dim=0)
    return extrema, integers, y[:, 0].topk(1)[0], y[:, 1].topk(1, largest=False)[0], y.kthvalue(1, 0, True)[0], y.max(1)


@pytest.mark.parametrize(
    "output_type, dynamic", [("linalg-on-tensors", False), ("stablehlo", True), ("tosa", False)], ids=str
)
def test_ranks_of_selected_elements(output_type, dynamic):
    infinite = torch.full((4,), -torch.inf)
    x = torch.stack([normal(4), infinite, torch.tensor([1.0, 1.0, torch.nan, 1.0]), infinite, normal(4)])
    shapes = ({0: Dim.AUTO}, {0: Dim.AUTO}) if dynamic else None
    lowered = lower(ranks, torch.ones(5, 4), MASKS[0], output_type=output_type, dynamic_shapes=shapes)
    for rows in (MASKS[0], MASKS[2], torch.arange(5) == 3, torch.arange(5) % 2 == 1, torch.arange(5) > 1):
        assert_same(lowered(x, rows), ranks(x, rows), None)
    with pytest.raises(AssumptionError, match="the model raises an error"):
        lowered(x, MASKS[1])


def test_median_of_nothing_is_nan():
    model = lambda x, rows: (x[rows].median(), x[rows][:, 1].nanmedian())  # noqa: E731
    lowered = lower(model, normal(5, 4), MASKS[0], output_type="linalg-on-tensors")
    for x in (normal(5, 4), torch.full((5, 4), torch.nan)):
        for rows in MASKS:
            assert_same(lowered(x, rows), model(x, rows), None)


def test_k_that_is_a_size_is_checked():
    model = lambda x: (x[x > 0].topk(x.shape[0] // 2)[0], x.topk(x[x > 0].shape[0])[0])  # noqa: E731
    x = torch.tensor([3.0, 1.0, -1.0, 2.0])
    lowered = lower(model, x, output_type="linalg-on-tensors", dynamic_shapes=({0: Dim.DYNAMIC},))
    assert_same(lowered(x), model(x), None)
    with pytest.raises(AssumptionError, match="the model raises an error"):
        lowered(x - 2)


def test_manifest_has_the_sizes_of_padded_results():
    lowered = lower(lambda x, rows: (x[rows], rows.nonzero()), normal(5, 4), MASKS[0], output_type=STABLEHLO)
    function = lowered.manifest.functions["main"]
    size = function.results[2].name
    assert [leaf.type and leaf.type.shape for leaf in function.outputs.leaves] == [(size, 4), (size, 1)]
    assert [(each.kind, each.type.shape) for each in function.results] == [
        ("output", (5, 4)),
        ("output", (5, 1)),
        ("size", ()),
    ]
    assert lowered.verify(backends=["jit"]).passed
    assert Manifest.from_json(lowered.manifest.to_json()) == lowered.manifest


def test_update_is_one_select():
    def update(x, mask):
        y = x.clone()
        y[..., mask] += 1
        return y

    lowered = lower(update, normal(3, 5), MASKS[0], output_type=STABLEHLO)
    operations = [line.split("=")[1].split()[0] for line in str(lowered.module).splitlines() if " = stablehlo." in line]
    assert operations.count("stablehlo.select") == 1
    assert not any("scatter" in name or "gather" in name or "while" in name for name in operations)


def test_sizes_that_are_asserted_to_be_others_are_not_selections():
    def product(x, rows, y):
        selected = x[rows]
        torch._check(selected.shape[0] == y.shape[0])
        return (selected * y).sum()

    shapes = ({0: "n"}, {0: "n"}, {0: "k"})
    with pytest.raises(StageFailed, match="data-dependent size"):
        lower(product, normal(5, 4), MASKS[0], normal(3, 4), output_type=STABLEHLO, dynamic_shapes=shapes)
