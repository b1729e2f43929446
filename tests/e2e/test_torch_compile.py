"""``torch.compile(backend="fx_importer")`` against eager PyTorch: results, mutations, gradients, training."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib.metadata
import logging
import re
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from fx_importer import NotInstalledError, StageFailed, UsageError
from fx_importer.dynamo import backend
from fx_importer.dynamo.graph_compilation import COMPILED
from fx_importer.engines import Engine, JitBackend, engine_table
from fx_importer.engines.jit.engine import JIT_ENGINE
from fx_importer.errors import EagerFallbackWarning
from fx_importer.process import optional_packages
from tests.e2e.harness import assert_same, integers, normal
from tests.engines.test_engine_table import needs_iree, needs_tosa, needs_xla

pytestmark = [  # of torch about itself
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in (
        "TF32 acceleration",
        "The .grad attribute of a Tensor that is not a leaf",
        ".*should not be instantiated",
    )
]


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


Call = tuple[Any, ...] | Mapping[str, Any]
"""Positional arguments, or keyword arguments."""


@dataclass(frozen=True)
class Row:
    """A function, and its calls."""

    name: str
    build: Callable[[], Callable[..., Any]]
    """Returns the function, or the module, with new state."""
    calls: Callable[[], Sequence[Call]] = lambda: [(normal(3, 4),)]
    graphs: int | None = 1
    """Number of compiled graphs: one more per graph break, and per recompilation for a size. None if it depends on the
    version of torch: as many as Dynamo gives a backend of torch."""
    state: Callable[[Any], Any] = lambda function: dict(getattr(function, "named_buffers", dict)())
    """Returns other values that the calls mutate."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `torch.compile`."""
    gradients: bool = False


def called(function: Callable[..., Any], call: Call) -> Any:
    return function(**call) if isinstance(call, Mapping) else function(*call)


def check(row: Row, **options: Any) -> None:
    """Make the same calls of the function and of the compiled one; compare results, arguments and state."""
    eager, model = row.build(), row.build()
    compiled = torch.compile(model, backend="fx_importer", options=options or None, **row.options)
    for ours, theirs in zip(row.calls(), row.calls(), strict=True):
        torch.manual_seed(0)
        expected = called(eager, theirs)
        torch.manual_seed(0)
        actual = called(compiled, ours)
        assert_same(actual, expected, (1e-4, 1e-5))
        if row.gradients:
            assert_same(gradients(model, actual, ours), gradients(eager, expected, theirs), (1e-4, 1e-5))
        assert_same(ours, theirs, (1e-5, 1e-5))
        assert_same(row.state(model), row.state(eager), (1e-5, 1e-5))
    compiled_graphs = counters["stats"]["unique_graphs"]
    assert compiled_graphs == (graphs_of_dynamo(row) if row.graphs is None else row.graphs)


def graphs_of_dynamo(row: Row) -> int:
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(row.build(), backend="eager", **row.options)
    for call in row.calls():
        called(compiled, call)
    return counters["stats"]["unique_graphs"]


def gradients(function: Any, result: Any, call: Call) -> tuple[Tensor | None, ...]:
    leaves = [each for each in pytree.tree_leaves((call, result)) if isinstance(each, Tensor)]
    wanted = [*getattr(function, "parameters", list)(), *(each for each in leaves if each.is_leaf)]
    found = [each for each in wanted if each.requires_grad]
    loss = sum(each.square().sum() for each in leaves if each.grad_fn is not None)
    assert isinstance(loss, Tensor)
    return torch.autograd.grad(loss, found, allow_unused=True)


def checked(x: Tensor, info: Tensor) -> Tensor:
    torch.ops.aten._linalg_check_errors.default(info, "solve", is_matrix=True)
    return x * torch.tensor([1.0, 2, 3, 4])


# Breaks


def prints(x: Tensor) -> Tensor:
    y = x.sin()
    print("halfway")
    return y.cos()


def branches(x: Tensor) -> Tensor:
    y = x * 2
    if y.sum() > 0:
        return y.relu()
    return y - 1


def branches_within(x: Tensor) -> Tensor:
    def inner(y: Tensor) -> Tensor:
        return y + 1 if y.mean() > 0 else y - 1

    return inner(x.exp()) * inner(-x.exp())


def reads_items(x: Tensor) -> Tensor:
    n = int(x[0, 0].item())
    return x[:, : n % 3 + 1] * n


outside: Any = torch.compiler.disable(lambda x: x.flip(0))


def calls_out(x: Tensor) -> Tensor:
    return outside(x + 1) * 2


def catches(x: Tensor) -> Tensor:
    try:
        y = x.sigmoid()
        raise ValueError(str(y.shape))
    except ValueError:
        return x.tanh()


def loops(x: Tensor) -> Tensor:
    while x.norm() > 1:
        x = x / 2
    return x


class Early(nn.Module):
    """Returns early once the values have converged."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        for depth, layer in enumerate(self.layers):
            x = torch.tanh(layer(x))
            if x.abs().max() < 0.5:
                return x, depth
        return x, -1


# Closures and captured values


def closure() -> Callable[[Tensor], Tensor]:
    weight, scale = normal(4, 4, seed=2), 3

    def apply(x: Tensor) -> Tensor:
        return x @ weight * scale

    return apply


def counting_closure() -> Callable[[Tensor], Tensor]:
    count = 0

    def apply(x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return x * count

    return apply


def decorated() -> Callable[[Tensor], Tensor]:
    def twice(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        @functools.wraps(function)
        def both(x: Tensor) -> Tensor:
            return function(function(x))

        return both

    return twice(lambda x: x.tanh() + 0.5)


def comprehends(xs: Sequence[Tensor]) -> Tensor:
    parts = [x.mean(-1, keepdim=True) for x in xs if x.dim() == 2]
    return torch.cat(parts, -1).sum(*[0], keepdim=True)


# Mutations

TOTALS: dict[str, Any] = {}


def writes_global(x: Tensor) -> Tensor:
    TOTALS["sum"] = TOTALS.get("sum", 0) + x.sum()
    TOTALS["calls"] = TOTALS.get("calls", 0) + 1
    return x / TOTALS["sum"]


def with_global() -> Callable[[Tensor], Tensor]:
    TOTALS.clear()
    totals: dict[str, Any] = {}  # a global of this function only

    def function(x: Tensor) -> Tensor:
        TOTALS.clear()
        TOTALS.update(totals)
        y = writes_global(x)
        totals.update(TOTALS)
        return y

    return function


def appends(x: Tensor, seen: list[Tensor]) -> int:
    seen.append(x.square())
    seen[0] = seen[0] + 1
    return len(seen)


def fills_dictionary(x: Tensor, cache: dict[str, Any]) -> Tensor:
    cache["key"] = x.exp()
    cache["count"] = cache.get("count", 0) + 1
    return cache.pop("old") + cache["key"]


def writes_input(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    y[0] = 5
    return x @ y


def writes_view(x: Tensor) -> Tensor:
    x.view(-1)[2:5].mul_(10)
    x.t()[0] += 1
    return x.sum(0)


class Running(nn.Module):
    """Keeps a mean, a count, and the last inputs, which are not a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.last: list[Tensor] = []
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.mean, Tensor)
        assert isinstance(self.count, Tensor)
        self.count += 1
        self.mean.lerp_(x.mean(0), 0.25)
        self.calls += 1
        self.last = [x * self.calls]
        return x - self.mean


class Attribute:
    def __init__(self) -> None:
        self.state = torch.zeros(4)

    def __call__(self, x: Tensor) -> Tensor:
        self.state = self.state + x.sum(0)
        return x * self.state


# Arguments and results

Pair = namedtuple("Pair", ["low", "high"])


@dataclass
class Found:
    value: Tensor
    names: list[str]
    rest: Pair | None = None


torch.export.register_dataclass(Found, serialized_type_name="tests.e2e.test_torch_compile.Found")


def keywords(x: Tensor, *, scale: float = 1.0, shift: Tensor | None = None, mode: str = "plain") -> Tensor:
    y = x * scale if shift is None else x * scale + shift
    return y if mode == "plain" else y.flip(-1)


def nested(x: Tensor) -> dict[str, Any]:
    return {"a": (x + 1, [x.sum(), None]), "n": x.shape[0], "name": "x", "same": x}


def aliases(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y, y.t(), y.view(-1)[3:], x.t(), x[1:], y, x.t().exp()


def nothing_computed(x: Tensor, n: int) -> tuple[Tensor, int]:
    return x, n + 1


def by_complex(x: Tensor) -> Tensor:
    return torch.fft.fft(x).abs()


def no_inputs() -> Tensor:
    return torch.arange(6.0).reshape(2, 3).cumsum(1) + torch.tensor([1.0, 2.0, 3.0])


def windows(x: Tensor, n: int, scale: float) -> tuple[Tensor, int]:
    return F.pad(x[: x.shape[0] - n], (0, 0, 1, n)) * scale / x.shape[0] + n, x.shape[0] * n


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), nn.Sequential(nn.Linear(width, 8), nn.GELU(), nn.Linear(8, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(self.norm(x))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleDict({name: Block(4) for name in ("first", "second")})
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor, only: str | None = None) -> Tensor:
        for name, block in self.blocks.items():
            if only in (None, name):
                x = block(x) * self.scale
        return x


class StraightThrough(torch.autograd.Function):
    """Rounds, and passes gradients through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * 2


def checkpointed(x: Tensor) -> Any:
    return checkpoint(lambda y: y.sin().exp(), x, use_reentrant=False)


def attends(x: Tensor) -> Tensor:
    heads = x.reshape(1, 2, 3, 4)
    return F.scaled_dot_product_attention(heads, heads + 1, heads * 2, is_causal=True)


def frozen_half(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x.exp()
    return y * x


def by_autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.t()


def of_sizes(*sizes: int) -> Callable[[], Sequence[Call]]:
    return lambda: [(normal(size, 4, seed=size),) for size in sizes]


def seeded(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def built() -> nn.Module:
        torch.manual_seed(0)
        return build()

    return built


def leaf(*shape: int, seed: int = 1) -> Tensor:
    return normal(*shape, seed=seed).requires_grad_()


ROWS = [
    Row("print", lambda: prints, graphs=2),
    Row("branch", lambda: branches, lambda: [(normal(3, 4).abs(),), (-normal(3, 4).abs(),)], graphs=3),
    Row("branch-within", lambda: branches_within, graphs=6),
    Row("item", lambda: reads_items, lambda: [(normal(3, 4) + 5,), (normal(3, 4) + 7,)], graphs=3),
    Row("disabled", lambda: calls_out, graphs=2),
    Row("exception", lambda: catches),
    Row("loop", lambda: loops, lambda: [(normal(3, 4) * 5,)], graphs=None),
    Row("early-exit", Early, lambda: [(normal(3, 4),), (normal(3, 4) * 0.01,)], graphs=None),
    Row("closure", closure, lambda: [(normal(3, 4),)] * 2),
    Row("counting-closure", counting_closure, lambda: [(normal(3, 4),)] * 3, graphs=2),
    Row("decorated", decorated),
    Row("comprehension", lambda: comprehends, lambda: [([normal(2, 3), normal(2), normal(2, 5)],)]),
    Row("lambda", lambda: lambda x: x.softmax(-1)),
    Row("partial", lambda: functools.partial(keywords, scale=2.0)),
    Row("global", with_global, lambda: [(normal(3, 4),)] * 3, graphs=None, state=lambda _: dict(TOTALS)),
    Row("list", lambda: appends, lambda: [(normal(3, 4), [normal(2)])]),
    Row("dictionary", lambda: fills_dictionary, lambda: [(normal(3, 4), {"old": normal(4)})]),
    Row("input", lambda: writes_input, lambda: [(normal(3, 4), normal(4, 2))]),
    Row("view-of-input", lambda: writes_view),
    Row(
        "buffers", Running, lambda: [(normal(3, 4),)] * 3, graphs=3, state=lambda m: (m.last, m.calls, m.mean, m.count)
    ),
    Row("attribute", Attribute, lambda: [(normal(3, 4),)] * 2, state=lambda each: each.state),
    Row("keywords", lambda: keywords, lambda: [{"x": normal(3, 4), "shift": normal(4), "mode": "flipped"}]),
    Row("nested", lambda: nested),
    Row("named-tuple", lambda: lambda x: Pair(*x.aminmax())),
    Row("dataclass", lambda: lambda x: Found(x.sum(), ["sum"], Pair(x.amin(), x.amax()))),
    Row("aliases", lambda: aliases),
    Row("nothing-computed", lambda: nothing_computed, lambda: [(normal(3, 4), 2)], graphs=0),
    Row("no-inputs", lambda: no_inputs, lambda: [()]),
    Row("sizes", lambda: lambda x: (x - x.mean(0), x.shape[0] * 2), of_sizes(3, 5, 7, 2), graphs=2),
    Row("sizes-static", lambda: lambda x: x.cumsum(0), of_sizes(3, 5, 3), graphs=2, options={"dynamic": False}),
    Row("sizes-dynamic", lambda: lambda x: x.reshape(-1).sort()[0], of_sizes(3, 5, 7), options={"dynamic": True}),
    Row(
        "numbers",
        lambda: windows,
        lambda: [(normal(6, 2), 2, 0.5), (normal(7, 2), 3, 0.75), (normal(9, 2), 4, 1.5)],
        graphs=2,
    ),
    Row("modules", Nested, lambda: [(normal(3, 4),), (normal(3, 4), "second")], graphs=2, gradients=True),
    Row("gradient-of-input", lambda: lambda x: (x.exp(), x.detach() * 2), lambda: [(leaf(3, 4),)], gradients=True),
    Row("gradient-broken", lambda: prints, lambda: [(leaf(3, 4),)], graphs=2, gradients=True),
    Row("autograd-function", lambda: lambda x: StraightThrough.apply(x * 3), lambda: [(leaf(3, 4),)], gradients=True),
    Row("checkpoint", lambda: checkpointed, lambda: [(leaf(3, 4),)], gradients=True),
    Row("no-grad", lambda: frozen_half, lambda: [(leaf(3, 4),)], graphs=1, gradients=True),
    Row("gradient-sizes", seeded(lambda: nn.Linear(4, 2)), of_sizes(3, 5, 6), graphs=2, gradients=True),
    Row("dropout", lambda: lambda x: F.dropout(x + torch.rand(3, 4), 0.4), lambda: [(leaf(3, 4),)], gradients=True),
    Row("dropout-transposed", lambda: lambda x: F.dropout(x.t() + 1, 0.4), lambda: [(leaf(5, 7),)], gradients=True),
    Row("dropout-sizes", lambda: lambda x: F.dropout(x, 0.4), of_sizes(3, 5, 6), graphs=2),
    Row("sampling", lambda: lambda x: torch.multinomial(x.softmax(-1), 2) + torch.bernoulli(x.sigmoid())[:, :2]),
    Row("attention", lambda: attends, lambda: [(leaf(6, 4),)], gradients=True),
    Row("rrelu", lambda: lambda x: F.rrelu(x), lambda: [(leaf(3, 4),)], gradients=True),
    Row("autocast", lambda: by_autocast),
    Row("complex", lambda: by_complex),
    Row(
        "channels-last",
        lambda: lambda x: x.relu() + 1,
        lambda: [(normal(2, 3, 4, 5).to(memory_format=torch.channels_last),)],
    ),
    Row(
        "embedding",
        lambda: lambda i, w: F.embedding(i, w),
        lambda: [(integers(3, low=0, high=5), leaf(5, 2))],
        gradients=True,
    ),
    Row(
        "effects",  # of the checks of torch.linalg, whose token is an input and an output of the graph
        lambda: checked,
        lambda: [(normal(3, 4), torch.zeros((), dtype=torch.int32))],
    ),
]


@pytest.mark.slow_rows(
    "^modules$",
    "^buffers$",
    "^numbers$",
    "^gradient-sizes$",
    "^attention$",
    "^gradient-broken$",
    "^global$",
    "^dropout-sizes$",
    "^branch-within$",
    "^dropout-transposed$",
    "^rrelu$",
    "^embedding$",
    "^sampling$",
    "^view-of-input$",
    "^complex$",
    "^checkpoint$",
    "^sizes$",
    "^sizes-dynamic$",
    "^effects$",
    "^sizes-static$",
    "^dropout$",
    "^gradient-of-input$",
    "^autograd-function$",
    "^(print|loop)$",
)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_compiled_function_agrees_with_eager(row: Row) -> None:
    check(row)


NAMED = {row.name: row for row in ROWS}


@pytest.mark.slow_rows(
    "^sizes-tosa-jit$",
    "^sizes-stablehlo-jit-False$",
    "^dropout-sizes-stablehlo-False$",
    "^numbers-stablehlo-jit-False$",
    "^closure-tosa_reference$",
    "^print-stablehlo$",
    "^no-grad-stablehlo-jit$",
    "^closure-torch-iree$",
)
@pytest.mark.parametrize(
    "name, options",
    [
        *(("print", {"output_type": "stablehlo"}), ("no-grad", {"output_type": "stablehlo", "engine": "jit"})),
        *(
            (name, {"output_type": "stablehlo", "engine": "jit", "dynamic_shapes": False})
            for name in ("sizes", "numbers")
        ),
        ("complex", {"output_type": "stablehlo", "engine": "jit"}),
        ("dropout-sizes", {"engine": "stablehlo", "dynamic_shapes": False}),
        *((name, {"output_type": "tosa", "engine": "jit"}) for name in ("sizes", "complex", "keywords")),
        ("gradient-of-input", {"output_type": "tosa", "engine": "jit"}),
        *((name, {"engine": "eager", "output_type": "torch"}) for name in ("sizes", "dropout", "aliases")),
        pytest.param("closure", {"engine": "tosa_reference"}, marks=needs_tosa),
        *(pytest.param(name, {"engine": "iree"}, marks=needs_iree) for name in ("sizes", "gradient-of-input")),
        pytest.param("closure", {"output_type": "torch", "engine": "iree"}, marks=needs_iree),
        pytest.param("input", {"engine": "xla"}, marks=needs_xla),
    ],
    ids=lambda each: "-".join(map(str, each.values())) if isinstance(each, dict) else each,
)
def test_other_output_types_and_backends(name: str, options: Mapping[str, Any]) -> None:
    check(NAMED[name], **options)


# Training


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.second, self.drop, self.head = nn.Conv2d(4, 4, 3), nn.Dropout(0.2), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.head(self.drop(F.silu(self.second(x)).flatten(1)))


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(7, 8), nn.Embedding(5, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.layer(x, src_mask=mask, is_causal=True).mean(1))


Batches = list[tuple[Tensor, Tensor]]


def train(model: nn.Module, forward: Callable[..., Tensor], batches: Batches) -> list[float]:
    """Return the losses of a few steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    losses: list[float] = []
    for step in range(8):
        torch.manual_seed(step)
        x, labels = batches[step % len(batches)]
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


TRAINED: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batches]]] = {
    "cnn": (Images, lambda: [(normal(6, 1, 8, 8, seed=i), integers(6, low=0, high=3, seed=i)) for i in range(2)]),
    "transformer": (
        Text,
        lambda: [(integers(6, 5, low=0, high=7, seed=i), integers(6, low=0, high=3, seed=i)) for i in range(2)],
    ),
}


@pytest.mark.slow_rows("transformer")
@pytest.mark.parametrize("name", TRAINED)
def test_losses_of_training(name: str) -> None:
    build, batches = TRAINED[name]
    torch.manual_seed(0)
    model = build()
    ours = copy.deepcopy(model)
    compiled = torch.compile(ours, backend="fx_importer")
    expected, actual = train(model, model, batches()), train(ours, compiled, batches())
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)
    assert expected[-1] < expected[1]  # of the same batch
    torch.testing.assert_close(dict(ours.named_buffers()), dict(model.named_buffers()), rtol=1e-3, atol=1e-4)
    assert counters["stats"]["unique_graphs"] == 1
    model.eval()
    ours.eval()
    x = batches()[0][0]
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-2, atol=1e-3)


OPTIMIZERS = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)


@pytest.mark.slow_rows("^Adam$", "^AdamW$")
@pytest.mark.parametrize("kind", OPTIMIZERS, ids=lambda kind: kind.__name__)
@pytest.mark.filterwarnings("ignore:Profiler record function", "ignore:.*torch.jit.script_method")
def test_compiled_optimizer_step(kind: Any) -> None:
    def stepped(compiled: bool) -> list[Tensor]:
        weights = [nn.Parameter(normal(3, 2)), nn.Parameter(normal(4))]
        optimizer = kind(weights, lr=0.1)
        step = torch.compile(optimizer.step, backend="fx_importer") if compiled else optimizer.step
        for turn in range(2):
            for each in weights:
                each.grad = torch.sin(each.detach() + turn)
            step()
        return [each.detach() for each in weights]

    torch.testing.assert_close(stepped(compiled=True), stepped(compiled=False))


# Eager fallback


@torch.library.custom_op("torch_compile::sorted_with_sum", mutates_args=())
def sorted_with_sum(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sort(0).values, x.sum(0)


@sorted_with_sum.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(x.shape[1:])


@torch.library.custom_op("torch_compile::add_to", mutates_args={"x"})
def add_to(x: Tensor, y: Tensor) -> None:
    x.add_(y)


@add_to.register_fake
def _(x: Tensor, y: Tensor) -> None:
    pass


def two_results(x: Tensor) -> tuple[Tensor, Tensor]:
    values, total = sorted_with_sum(x.sin())
    return values.t() * x.shape[0], sorted_with_sum(x + total)[1]


def mutates_by_operator(x: Tensor) -> Tensor:
    y = x.exp()
    add_to(y, x)
    add_to(x, y.sin())
    return y.cos()


FALLS_BACK = {
    "several-results": (two_results, "torch_compile.sorted_with_sum.default"),
    "mutation": (mutates_by_operator, "auto_functionalized_v2"),
    "order-of-draws": (
        lambda x: torch.rand(3, 4) + torch.ops.aten._standard_gamma(x.abs()) * torch.rand_like(x),
        "aten._standard_gamma.default",
    ),
    "draws-by-value": (lambda x: torch.multinomial(x.abs(), 3, True) + 1, "aten.multinomial.default"),
}


@pytest.mark.slow_rows("^mutation$", "^draws-by-value$")
@pytest.mark.parametrize("name", FALLS_BACK)
def test_unsupported_operators_run_in_eager_pytorch(name: str) -> None:
    function, operator = FALLS_BACK[name]
    sizes = (3, 5) if name == "draws-by-value" else (3, 3)
    message = rf"runs {re.escape(operator)} in eager PyTorch: linalg-on-tensors does not support it"
    with pytest.warns(EagerFallbackWarning, match=message) as warned:
        check(Row(name, lambda: function, lambda: [(normal(size, 4),) for size in sizes], graphs=None))
    assert f"{Path(__file__).name}:" in str(warned[0].message)


def test_encoder_layers_in_evaluation_are_compiled() -> None:
    """Without gradients, torch records a kernel of its own for each layer. A fallback to it would be a warning."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with torch.no_grad():
        check(Row("encoder", lambda: nn.TransformerEncoder(layer, 2).eval(), lambda: [(normal(2, 5, 8),)]))


# Compiled once


def test_equal_graphs_are_compiled_once() -> None:
    """Layers of one shape in two models: other weights and other names of sizes make no other graph."""
    for dynamic, graphs in ((False, 1), (True, 2)):
        for seed in range(3):
            layer, x = nn.Linear(4, 4), normal(3, 4, seed=seed)
            compiled = torch.compile(lambda x, layer=layer: layer(x).relu(), backend="fx_importer", dynamic=dynamic)
            with torch.no_grad():
                torch.testing.assert_close(compiled(x), layer(x).relu())
            torch._dynamo.reset_code_caches()
        assert len(COMPILED) == graphs
    assert counters["stats"]["unique_graphs"] == 6


@pytest.mark.slow_rows("^<lambda>4$", "^<lambda>2$", "^<lambda>0$", "^<lambda>3$")
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x * 2,
        lambda x: x * 3.0,
        lambda x: x.double() * 3,
        lambda x: x[:2] * 3,
        lambda x: x * torch.tensor([1.0, 2, 3, 4]),
        lambda x: x * torch.tensor([1.0, 2, 3, 5]),
        lambda x: (x * 3).t(),
    ],
)
def test_different_graphs_are_compiled_separately(change: Callable[[Tensor], Tensor]) -> None:
    """A constant, its type, a dtype, a shape, the elements of a constant tensor."""
    x = normal(3, 4)
    base = torch.compile(lambda x: x * 3, backend="fx_importer")
    base(x)
    before = len(COMPILED)
    assert before == 1
    torch.testing.assert_close(torch.compile(change, backend="fx_importer")(x), change(x))
    assert len(COMPILED) == 2


def test_cache_can_be_disabled_and_cleared() -> None:
    torch.compile(lambda x: x + 1, backend="fx_importer", options={"cache": False})(normal(3))
    assert not COMPILED
    torch.compile(lambda x: x + 1, backend="fx_importer")(normal(3))
    assert len(COMPILED) == 1
    torch.compile(lambda x: x + 1, backend="fx_importer", options={"output_type": "stablehlo"})(normal(3))
    assert len(COMPILED) == 2
    torch._dynamo.reset()
    assert not COMPILED


def test_graph_per_size_that_must_be_static() -> None:
    compiled = torch.compile(
        lambda x: x.flip(0) * x.shape[0], backend="fx_importer", dynamic=True, options={"dynamic_shapes": False}
    )
    for size in (3, 4, 3):
        x = normal(size, 2)
        torch.testing.assert_close(compiled(x), x.flip(0) * size)
    assert counters["stats"]["unique_graphs"] == 1
    assert len(COMPILED) == 3  # the symbolic graph, and each size


def test_weights_are_not_copied() -> None:
    """An in-place change of a weight is visible, and a weight used by the backward graph is not copied."""
    layer = nn.Linear(4, 4)
    compiled = torch.compile(layer, backend="fx_importer")
    x = leaf(3, 4)
    compiled(x)
    with torch.no_grad():
        layer.weight.zero_()
    y = compiled(x)
    torch.testing.assert_close(y, layer.bias.expand(3, 4))
    saved = [each.data_ptr() for each in y.grad_fn.saved_tensors]
    assert layer.weight.data_ptr() in saved


# Errors


def test_backend_is_registered() -> None:
    assert "fx_importer" in torch._dynamo.list_backends()


def test_entry_point_is_declared() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    declared = re.search(r'^\[project.entry-points.torch_dynamo_backends\]\n(\w+) = "(.*)"$', project, re.MULTILINE)
    assert declared is not None
    point = importlib.metadata.EntryPoint(declared[1], declared[2], "torch_dynamo_backends")
    assert point.name == "fx_importer"
    assert point.load() is backend


@pytest.mark.skipif(
    "fx_importer" not in importlib.metadata.entry_points(group="torch_dynamo_backends").names,
    reason="the metadata of the installed package has no entry point: it was installed before there was one",
)
@pytest.mark.new_interpreter
@pytest.mark.slow
def test_name_is_found_without_an_import() -> None:
    text = "import torch; print(torch.compile(lambda x: x + 1, backend='fx_importer')(torch.ones(2)).tolist())"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert ran.stdout == "[2.0, 2.0]\n", ran.stderr


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"outputtype": "tosa"}, "backend 'fx_importer' has no option 'outputtype': accepted are 'engine', "),
        ({"output_type": "llvm"}, "unknown output type 'llvm': accepted are 'raw', "),
        (
            {"output_type": "torch"},
            "the default engine, 'jit', does not run torch: pass the option 'engine', which",
        ),
        ({"output_type": "tosa", "engine": "stablehlo"}, "'stablehlo' does not run tosa: option 'engine' may be"),
        ({"engine": "gpu"}, "unknown backend 'gpu': accepted are 'jit', "),
        ({"engine": 3}, "or a backend of your own, which has `load`; not 3"),
        ({"cache": "no"}, "option 'cache' is True or False, not 'no'"),
        ({"contract": "ignore"}, "unknown contract policy 'ignore': accepted are 'error', 'warn'"),
        (["tosa"], "options is a dictionary of options by name, not ['tosa']"),
    ],
)
def test_invalid_options(options: Any, expected: str) -> None:
    with pytest.raises(BackendCompilerFailed) as caught:
        torch.compile(lambda x: x + 1, backend="fx_importer", options=options)(normal(3))
    assert isinstance(caught.value.inner_exception, UsageError)
    assert expected in str(caught.value)


def test_other_modes_are_errors() -> None:
    with pytest.raises(BackendCompilerFailed, match="mode='reduce-overhead' is Inductor's.* 'max-autotune'"):
        torch.compile(lambda x: x + 1, backend="fx_importer", mode="reduce-overhead")(normal(3))


def test_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional_packages, "is_installed", lambda _: False)
    with pytest.raises(BackendCompilerFailed, match="needs iree.compiler and .*fx-importer.iree.") as caught:
        torch.compile(lambda x: x + 1, backend="fx_importer", options={"engine": "iree"})(normal(3))
    assert isinstance(caught.value.inner_exception, NotInstalledError)


class Offset:
    """A backend whose results are wrong by a constant, and which takes some seconds for each call."""

    def __init__(self, offset: float, seconds: float):
        self.offset, self.seconds = offset, seconds

    def load(self, module: Any, func_name: str = "main") -> Any:
        function = JitBackend().load(module, func_name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            time.sleep(self.seconds)
            return tuple(each + self.offset for each in function(*arguments))

        return call


def test_max_autotune_runs_the_fastest_engine(monkeypatch: pytest.MonkeyPatch, logged: list[logging.LogRecord]) -> None:
    def refuses(_: object) -> JitBackend:
        raise UsageError("not for this one")

    others = {"fast": lambda _: Offset(2, 0), "slow": lambda _: Offset(3, 0.1), "refuses": refuses}
    default = dataclasses.replace(
        JIT_ENGINE, create=lambda _: Offset(1, 0.1), variants={"level 3": lambda: Offset(4, 0.1)}
    )
    engines = [default, *(Engine(name, create, default.accepts) for name, create in others.items())]
    monkeypatch.setattr(engine_table, "all_engines", lambda: {engine.name: engine for engine in engines})
    x = normal(64, 64)
    torch.manual_seed(0)
    expected = torch.nn.functional.dropout(x) + 2, torch.rand(2)
    torch.manual_seed(0)
    compiled = torch.compile(torch.nn.functional.dropout, backend="fx_importer", mode="max-autotune")(x)
    assert_same((compiled, torch.rand(2)), expected, (1e-5, 1e-5))
    text = "\n".join(record.getMessage() for record in logged)
    assert re.search(r"runs on fast: jit \d.* ms, .*fast \S+ ms", text)
    assert "without refuses: not for this one" in text


def test_lowering_error_has_line_and_report(tmp_path: Path) -> None:
    def sums(x: Tensor) -> Tensor:
        return sorted_with_sum(x)[1]

    options: dict[str, Any] = {"dump_dir": str(tmp_path), "unsupported": "error"}
    compiled = torch.compile(sums, backend="fx_importer", options=options)
    with pytest.raises(BackendCompilerFailed) as caught:
        compiled(normal(3, 3))
    error, text = caught.value.inner_exception, str(caught.value)
    assert isinstance(error, StageFailed)
    assert f"{Path(__file__).name}:{sums.__code__.co_firstlineno + 1}" in text
    assert error.report is not None
    assert error.report.parent == tmp_path
    assert str(error.report) in text
    assert (error.report / "program.pt2").exists()


def test_random_numbers_that_depend_on_values() -> None:
    compiled = torch.compile(
        lambda x: torch.ops.aten._standard_gamma(x.abs()), backend="fx_importer", options={"unsupported": "error"}
    )
    with pytest.raises(BackendCompilerFailed, match="some depend on values that it computes") as caught:
        compiled(normal(3, 4))
    assert f"{Path(__file__).name}:" in str(caught.value)


def test_runtime_error() -> None:
    compiled = torch.compile(lambda x, i: x[i], backend="fx_importer")
    with pytest.raises(UsageError, match="stopped: .*out of"):
        compiled(normal(3), torch.tensor([5]))
