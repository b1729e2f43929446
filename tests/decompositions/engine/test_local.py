import copy
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from fx_importer import lower
from fx_importer.decompositions import BASE, LINALG, STABLEHLO, TOSA, decompose, decomposes
from fx_importer.decompositions.engine.decompose import prepare, retrace
from fx_importer.decompositions.engine.local import RetraceRequired, decompose_locally
from fx_importer.frontend.gradients.joint_graphs import with_gradients
from testing.zoo import ZOO
from tests.decompositions.engine.same_graph import differences
from tests.fx_passes.canonical import canonicalize

aten = torch.ops.aten
X = torch.arange(12.0).reshape(3, 4) - 5


class Model(nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def exported(function: Callable[..., Any], *inputs: Any, dynamic: bool = False) -> ExportedProgram:
    shapes = (tuple({0: Dim("batch")} for _ in inputs),) if dynamic else None
    return export(Model(function), inputs, dynamic_shapes=shapes, strict=False)


def targets(program: ExportedProgram) -> list[Any]:
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


def assert_same_as_torch(program: ExportedProgram, table: Any) -> None:
    """Check that the graph equals that of ``run_decompositions``, up to size computations and normal form."""
    program = prepare(program)
    ours = canonicalize(decompose_locally(program, {**table}))
    theirs = canonicalize(retrace(program, {**table}))
    assert differences(ours, theirs) == []


@pytest.mark.slow_rows(unless="resnet_small-True|lstm-False")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["bert_small", "gpt2_small", "resnet_small", "swin_small", "lstm"])
def test_models_decompose_as_by_torch(name: str, dynamic: bool) -> None:
    model, args, kwargs = ZOO[name].build()
    shapes = ZOO[name].dynamic_shapes if dynamic else None
    assert_same_as_torch(export(model, args, kwargs, dynamic_shapes=shapes, strict=False), LINALG)


def test_joint_graphs_decompose_as_by_torch() -> None:
    loss = Model(lambda y: y.log_softmax(1).square().mean())
    layers = nn.Sequential(nn.BatchNorm1d(4), nn.GELU(), nn.Linear(4, 2), loss)
    assert_same_as_torch(with_gradients(exported(layers, X)), LINALG)


@pytest.mark.slow_rows("^(elementwise|in place|several results|constants|factories)-True", unless="True-linalg")
@pytest.mark.parametrize("table", [BASE, LINALG, TOSA, STABLEHLO], ids=["base", "linalg", "tosa", "stablehlo"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: F.gelu(x) + F.softplus(x), id="elementwise"),
        pytest.param(lambda x: F.layer_norm(x, (4,)).var(1), id="normalization"),
        pytest.param(lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]), id="attention"),
        pytest.param(lambda x: F.pad(x, (1, 2)).flatten().reshape(-1, 7).unfold(0, 2, 1), id="shapes"),
        pytest.param(lambda x: torch.cat(x.split(2, 1)[::-1], 1).chunk(2, 1), id="several results"),
        pytest.param(lambda x: x.topk(2, 1)[1] + x.argmax(1, keepdim=True), id="integers"),
        pytest.param(lambda x: x * x.shape[0] / (2 * x.shape[0] + 1), id="sizes"),
        pytest.param(lambda x: torch.where(x > 0, x, 2.0).clamp(-0.0, 3).nan_to_num(), id="constants"),
        pytest.param(lambda x: torch.zeros(x.shape[0], 2).fill_(3) + x[:, :2].cumsum(0), id="factories"),
        pytest.param(lambda x: torch.einsum("ij,kj->ik", x, x + 1) @ x, id="products"),
        pytest.param(lambda x: (F.dropout(x, 0.5, False).contiguous().to(torch.float64), x), id="no-ops"),
        pytest.param(lambda x: F.relu(x + 1, inplace=True).add_(x).mul_(2).add_(x), id="in place"),
        pytest.param(lambda x: (y := x * 2, y[:, 1:3].add_(x[:, :2]), y[0].mul_(2), y * 3)[3], id="write to views"),
        pytest.param(lambda x: (x[1].copy_(x[0]), x.sum())[1], id="write to a view of an input"),
        pytest.param(lambda x: (y := x * 2, y[:, :2][0].relu_(), y[0][1].fill_(3), y)[3], id="nested views"),
        pytest.param(lambda x: (found := x.topk(2), found[0].div_(3), x[:, :2] + found[1])[2], id="one of two results"),
        pytest.param(lambda x: torch.stft(x.flatten(), 4, return_complex=True, pad_mode="constant").abs(), id="stft"),
        pytest.param(lambda x: (x * 2).index_fill_(1, torch.tensor([1]), 3.0).sub_(1), id="tensor literal"),
    ],
)
def test_operators_decompose_as_by_torch(function: Callable[..., Any], dynamic: bool, table: Any) -> None:
    assert_same_as_torch(exported(function, X.clone(), dynamic=dynamic), table)


def _two_views(x: Tensor) -> Tensor:
    y = x + 1
    first = y[0]
    y.add_(1)
    return first + y


def _two_disjoint_views(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x + 1
    first = y[0]
    y[1].add_(1)
    return first, y


def _earlier_view(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x + 1
    z = y.view(-1)
    y.relu_()
    return y, z


def _view_of_an_input(x: Tensor) -> tuple[Tensor, Tensor]:
    flat = x.view(-1)
    x.relu_()
    return x, flat


@decomposes(aten.relu.default)
def with_another_dtype(x: Tensor) -> Tensor:
    return x.double()


@decomposes(aten.relu.default)
def with_a_branch(x: Tensor) -> Any:
    return torch.ops.higher_order.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))


@decomposes(aten.relu.default)
def with_an_error(x: Tensor) -> Tensor:
    raise ValueError("no such luck")


NORM = nn.BatchNorm1d(4)


@pytest.mark.parametrize(
    ("function", "rule", "reason"),
    [
        pytest.param(lambda x: x.t().mul_(2), None, r"mul_ .*: it writes to the memory of '\w+'", id="transposed"),
        pytest.param(_two_disjoint_views, None, "it writes to memory that is read as 'select' later", id="disjoint"),
        pytest.param(_view_of_an_input, None, "it writes to memory that is read as 'view' later", id="input"),
        pytest.param(_two_views, None, "it writes to memory that is read as 'select' later, by add", id="two views"),
        pytest.param(_earlier_view, None, "it writes to memory that is read as 'view' later", id="result"),
        pytest.param(
            lambda x: (x + 1).squeeze_(0), None, "it writes to memory, and has no form that returns", id="metadata"
        ),
        pytest.param(
            lambda x: aten._native_batch_norm_legit(x, None, None, x[0], x[1], True, 0.1, 1e-5)[0],
            *(None, "it writes to memory, and has no form that returns"),
            id="several at once",
        ),
        pytest.param(
            lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)),
            *(None, "an operator of higher order has graphs of its own"),
            id="higher order",
        ),
        pytest.param(NORM, None, "writes to the memory of|it updates running statistics", id="statistics"),
        pytest.param(lambda x: x[x > 0].relu(), LINALG, "its rule makes sizes that depend on values", id="values"),
        pytest.param(torch.relu, with_another_dtype, "its rule computes a result of another type", id="type"),
        pytest.param(torch.relu, with_a_branch, "its rule calls cond, an operator of higher order", id="branch"),
        pytest.param(torch.relu, with_an_error, "its rule raises ValueError: no such luck", id="error"),
    ],
)
def test_retrace_required(function: Callable[..., Any], rule: Any, reason: str) -> None:
    table = rule if rule is LINALG else {} if rule is None else {aten.relu.default: rule}
    with pytest.raises(RetraceRequired, match=reason):
        decompose_locally(exported(function, X.clone()), table)


class Wrapped(Tensor):
    """A tensor subclass of unknown content."""


def test_wrapper_subclasses_require_retracing() -> None:
    program = exported(lambda x: x + 1, X)
    program.constants["wrapped"] = X.as_subclass(Wrapped)
    with pytest.raises(RetraceRequired, match="'wrapped' is of type Wrapped"):
        decompose_locally(program, {})


def test_programs_without_example_values_require_retracing() -> None:
    program = exported(lambda x: x + 1, X)
    for node in program.graph.nodes:
        node.meta.pop("val", None)
    with pytest.raises(RetraceRequired, match="its nodes have no example values"):
        decompose_locally(program, {})


def test_trace_has_the_reason_of_retracing() -> None:
    lowered = lower(Model(lambda x: x.t().add_(1)), X.clone(), mutation="functional")
    remarks = {stage.name: stage.remarks for stage in lowered.trace.stages}
    assert len(remarks["decompositions"]) == 1
    assert remarks["decompositions"][0].startswith("the whole program was traced again: add_")
    assert remarks["fx_passes"] == []


def _view_and_base(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x + 1
    first = y[0]
    first.mul_(2)
    return first, y


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: (x + 1).view(-1).add_(1).view_as(x), id="through a view"),
        pytest.param(lambda x: (x + 1)[0].mul_(2), id="a view"),
        pytest.param(_view_and_base, id="a view and its base"),
        pytest.param(lambda x: (x > 0).to(torch.int32).add_(torch.ones(4, dtype=torch.int64)), id="another dtype"),
        pytest.param(lambda x: (x + 1).relu_().neg_().copy_(x[0]).add_(1), id="chained"),
    ],
)
def test_writes_to_intermediate_tensors_become_functional(function: Callable[..., Any]) -> None:
    program = decompose(exported(function, X), LINALG)
    assert not any(target._schema.is_mutable for target in targets(program))
    torch.testing.assert_close(program.module()(X), function(X))


class Decoder(nn.Module):
    """Keeps keys, values and a counter in buffers, as in generation; one of its inputs is scratch memory."""

    keys: Tensor
    values: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("never_written", torch.zeros(2))
        self.register_buffer("keys", torch.zeros(1, 8, 4))
        self.register_buffer("values", torch.zeros(1, 8, 4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64), persistent=False)
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, at: Tensor, scratch: Tensor) -> tuple[Tensor, ...]:
        self.values.index_copy_(1, at, self.linear(x))
        self.keys[:, at] = x
        self.count.to(torch.int64).add_(1)  # the buffer itself, which is of this dtype
        scratch.detach().mul_(2)
        scratch.copy_(scratch + self.count)
        return F.softmax(x @ self.keys.mT, -1) @ self.values, self.count, scratch.sum()


@pytest.mark.slow_rows("^tosa$", "^linalg$")
@pytest.mark.parametrize("table", [{}, LINALG, TOSA, STABLEHLO], ids=["nothing", "linalg", "tosa", "stablehlo"])
def test_mutated_buffers_and_inputs_are_results(table: Any) -> None:
    inputs = torch.randn(1, 1, 4), torch.tensor([3]), torch.ones(3)
    program = export(Decoder(), inputs, strict=False)
    assert_same_as_torch(program, table)
    for result in (decompose_locally(program, {**table}), retrace(program, {**table})):
        assert [*result.graph_signature.buffers_to_mutate.values()] == ["keys", "values", "count"]
        assert [*result.graph_signature.user_inputs_to_mutate.values()] == ["scratch"]


def test_mutated_buffers_agree_with_eager() -> None:
    torch.manual_seed(0)
    model = Decoder()
    first = torch.randn(1, 1, 4), torch.tensor([3]), torch.ones(3)
    ours = decompose_locally(export(copy.deepcopy(model), first, strict=False), LINALG).module()
    for at in (3, 0, 5):
        inputs = [torch.randn(1, 1, 4), torch.tensor([at]), torch.ones(3)]
        again = [each.clone() for each in inputs]
        torch.testing.assert_close(ours(*inputs), model(*again))
        torch.testing.assert_close(inputs[2], again[2])


def test_given_program_is_unchanged() -> None:
    program = exported(lambda x: F.silu(x + 1, inplace=True), X)
    before = str(program)
    decompose_locally(program, BASE)
    assert str(program) == before


def test_rule_is_traced_once_per_kind_of_call() -> None:
    seen = []

    def rule(x: Tensor, alpha: float = 1.0) -> Tensor:
        seen.append((tuple(x.shape), alpha))
        return torch.where(x > 0, x, alpha * torch.expm1(x))

    def model(x: Tensor) -> Tensor:
        for alpha in (0.0, -0.0, 1.0, 1.0):
            x = F.elu(x, alpha)
        return F.elu(x[0]) + F.elu(x[0])

    program = decompose_locally(exported(model, X), {aten.elu.default: rule})
    assert seen == [((3, 4), 0.0), ((3, 4), -0.0), ((3, 4), 1.0), ((4,), 1.0)]
    torch.testing.assert_close(program.module()(X), model(X))


def test_same_tensor_twice_is_another_kind_of_call() -> None:
    @decomposes(aten.dot.default)
    def dot(x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sum()

    def model(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.dot(x, x), torch.dot(x, y)

    inputs = torch.tensor([1.0, 2]), torch.tensor([3.0, 4])
    program = decompose_locally(exported(model, *inputs), {aten.dot.default: dot})
    torch.testing.assert_close(program.module()(*inputs), model(*inputs))


def test_nodes_have_stack_traces_and_types() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.GELU()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    original = export(Outer(), (X,), strict=False)
    (gelu,) = original.graph.find_nodes(op="call_function", target=aten.gelu.default)
    program = decompose_locally(original, {aten.gelu.default: lambda x, **_: x * torch.sigmoid(x)})
    made = [node for node in program.graph.nodes if node.op == "call_function"]
    assert len(made) > 1
    for node in made:
        assert node.meta["stack_trace"] == gelu.meta["stack_trace"]
        assert node.meta["nn_module_stack"] == gelu.meta["nn_module_stack"]
        assert node.meta["val"].shape == (3, 4)


def test_sizes_are_nodes_and_make_no_guards() -> None:
    program = exported(lambda x: F.softplus(x).mean(0), X, dynamic=True)
    batch = next(node.meta["val"].shape[0] for node in program.graph.nodes if node.op == "placeholder")
    guards = len(batch.node.shape_env.guards)

    def mean(x: Tensor, axes: list[int], keepdim: bool = False) -> Tensor:
        return x.sum(axes, keepdim) / (2 * x.shape[0]) * 2

    result = decompose_locally(program, {aten.mean.dim: mean})
    assert operator.mul in targets(result)
    assert len(batch.node.shape_env.guards) == guards
    for rows in (2, 7):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(result.module()(x), F.softplus(x).mean(0))


def test_view_of_other_strides_becomes_a_reshape() -> None:
    @decomposes(aten.relu.default)
    def transposed(x: Tensor) -> Tensor:
        return x.t().clamp(0).t()

    program = decompose_locally(exported(lambda x: torch.relu(x).view(-1) + 1, X), {aten.relu.default: transposed})
    assert aten.reshape.default in targets(program)
    torch.testing.assert_close(program.module()(X), torch.relu(X).view(-1) + 1)


def test_tensor_literal_becomes_a_constant() -> None:
    @decomposes(aten.relu.default)
    def rule(x: Tensor) -> Tensor:
        return torch.maximum(x, torch.tensor([0.0, 0.0, 0.0, -1.0]))

    result = decompose(exported(lambda x: torch.relu(torch.relu(x)), X), {aten.relu.default: rule})
    assert len(result.constants) == 1
    torch.testing.assert_close(result.module()(X), torch.maximum(X, torch.tensor([0.0, 0.0, 0.0, -1.0])))
