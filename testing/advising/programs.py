"""Random programs, many of them beyond what lowers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.utils.rnn import pack_padded_sequence

from testing.op_cases import calls, operators

OUTPUT_TYPES = ("linalg-on-tensors", "tosa", "stablehlo")
DTYPES = (
    *(torch.float32, torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.complex64, torch.complex128, torch.int64, torch.int32, torch.uint8, torch.bool),
)


@torch.library.custom_op("testing_advice::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    """Return twice ``x``: no output type has the operator."""
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@dataclass(frozen=True)
class Program:
    """A model with inputs and options."""

    name: str
    f: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def with_(self, **options: Any) -> Program:
        """Return the program with other options; those that are None are left out."""
        merged = {**self.options, **options}
        return replace(self, options={name: value for name, value in merged.items() if value is not None})

    def __str__(self) -> str:
        shapes = ", ".join(f"{str(t.dtype)[6:]}{list(t.shape)}" for t in self.args if isinstance(t, Tensor))
        return f"{self.name}({shapes}) {self.options}"


def _rows(x: Tensor) -> Tensor:
    return x.real.sum(-1) if x.is_complex() else x.float().sum(-1)


def _as_long(x: Tensor) -> Tensor:
    return (x.real if x.is_complex() else x).abs().long() % 4


HARD: dict[str, Callable[[Tensor], Any]] = {
    "mask_rows": lambda x: x[_rows(x) > 0],
    "mask_columns": lambda x: x[:, _rows(x.T) > 0],
    "masked_select": lambda x: torch.masked_select(x, _rows(x)[:, None] > 0),
    "masked_write": lambda x: x.clone().index_put((_rows(x) > 0,), torch.zeros((), dtype=x.dtype)),
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x != 0)[0],
    "pad_to_four": lambda x: F.pad(x, (0, -x.shape[1] % 4)),
    "pad_to_eight_rows": lambda x: F.pad(x, (0, 0, 0, -x.shape[0] % 8)),
    "gamma": lambda x: torch.ops.aten._standard_gamma(x.abs()),
    "twice": lambda x: twice(x),
    "twice_twice": lambda x: twice(twice(x) + 1),
    "twice_and_nonzero": lambda x: (twice(x), x.nonzero()),
    "twice_and_gamma": lambda x: twice(x) + torch.ops.aten._standard_gamma(x.abs()),
    "unique": lambda x: torch.unique(x),
    "bincount": lambda x: torch.bincount(_as_long(x).flatten()),
    "kthvalue": lambda x: torch.kthvalue(x, 2).values,
    "median": lambda x: x.median(-1).values,
    "sort": lambda x: torch.sort(x, -1)[0],
    "topk": lambda x: torch.topk(x, 2).values,
    "fft": lambda x: torch.fft.fft(x),
    "rfft": lambda x: torch.fft.rfft(x).abs(),
    "svd": lambda x: torch.linalg.svd(x)[1],
    "inv": lambda x: torch.linalg.inv(x @ x.T),
    "det": lambda x: torch.linalg.det(x @ x.T),
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.T),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "cumsum": lambda x: x.cumsum(0),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "histc": lambda x: torch.histc(x, 4, 0.0, 1.0),
    "searchsorted": lambda x: torch.searchsorted(x.sort(-1)[0], x),
    "repeats": lambda x: torch.repeat_interleave(x, _as_long(x)[:, 0], dim=0),
    "item": lambda x: x[: int(_as_long(x)[0, 0])],
    "scalar": lambda x: x + _as_long(x).sum().item(),
    "roll": lambda x: torch.roll(x, x.shape[0] // 2, 0),
    "reshape": lambda x: x.reshape(-1, 2).sum(0),
    "complex": lambda x: torch.view_as_real(torch.complex(x, x).exp()),
    "angle": lambda x: torch.angle(x),
    "i0e": lambda x: torch.special.i0e(x),
    "digamma": lambda x: torch.digamma(x),
    "polygamma": lambda x: torch.polygamma(2, x),
    "linspace": lambda x: x + torch.linspace(0, 1, x.shape[0])[:, None],
    "window": lambda x: x * torch.hann_window(x.shape[1]),
    "triangle": lambda x: x[torch.tril_indices(x.shape[0], 2)[0]],
    "range": lambda x: x * torch.tensor(list(range(x.shape[0])))[:, None],
    "branch": lambda x: x * 2 if x.sum() > 0 else x,
    "one_hot": lambda x: F.one_hot(_as_long(x)),
    "packed": lambda x: pack_padded_sequence(x[None], torch.tensor([2]), batch_first=True).data,
    "wide_constant": lambda x: x + torch.full((6,), 0.1, dtype=torch.float64),
    "median_of_rows": lambda x: x[x.median(0).indices],
    "multinomial": lambda x: torch.multinomial(x.abs() + 1, 2),
    "random": lambda x: x + torch.randn_like(x),
}
"""Operators that an output type lacks, for some dtypes or for dynamic sizes, on a matrix of four by six."""

EASY: dict[str, Callable[[Tensor], Any]] = {
    "": lambda x: x,
    "relu": lambda x: x * (x != 0),
    "double": lambda x: x + x,
    "flip": lambda x: x.flip(0),
    "cat": lambda x: torch.cat([x, x], 1)[:, : x.shape[1]],
    "square": lambda x: x * x,
}

KEPT = ("aten.kthvalue", "aten.log_sigmoid_forward", "aten.unfold", "aten.index.Tensor", "aten.softplus", "aten.roll")


class Weighted(nn.Module):
    """Operators between two weights of the inputs' dtype."""

    def __init__(self, before: Callable[[Tensor], Any], hard: Callable[[Tensor], Any], dtype: torch.dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6, dtype=dtype), dtype.is_floating_point)
        self.before, self.hard = before, hard

    def forward(self, x: Tensor) -> Any:
        """Call the operators."""
        return self.hard(self.before(x) * self.weight)


class Loss(nn.Module):
    """A loss whose targets are not int64."""

    def __init__(self, function: Callable[..., Tensor]):
        super().__init__()
        self.function = function

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Compute the loss."""
        return self.function(scores.log_softmax(1), targets)


def program_of(seed: int, index: int) -> Program:
    """Return the program of a seed and an index."""
    draw = random.Random(f"{seed} {index}")
    torch.manual_seed(index)
    kind = draw.random()
    made = _of_opinfo(draw) if kind < 0.35 else _loss(draw) if kind < 0.4 else _composed(draw)
    options = {"output_type": draw.choice(OUTPUT_TYPES), **made.options}
    if draw.random() < 0.15:
        options["keep"] = draw.sample(KEPT, draw.choice((1, 2)))
    if options["output_type"] == "tosa" and draw.random() < 0.2:
        options["narrow_integers"] = True
    if draw.random() < 0.05:
        options["strict"] = True
    return replace(made, options=options)


def _composed(draw: random.Random) -> Program:
    name, before = draw.choice(list(HARD)), draw.choice(list(EASY))
    dtype = draw.choice(DTYPES)
    x = (torch.randn(4, 6) * 2).to(dtype) if not dtype.is_complex else torch.randn(4, 6, dtype=dtype)
    hard, easy = HARD[name], EASY[before]
    weighted = draw.random() < 0.4
    f = Weighted(easy, hard, dtype) if weighted else lambda x: hard(easy(x))
    options: dict[str, Any] = {}
    if draw.random() < 0.5:
        axes = draw.choice(((0,), (1,), (0, 1)))
        names = {0: draw.choice(("batch", Dim("batch", max=64), Dim.DYNAMIC)), 1: draw.choice(("width", Dim.AUTO))}
        options["dynamic_shapes"] = ({axis: names[axis] for axis in axes},)
    return Program(f"{before} {name}{' with a weight' if weighted else ''}".strip(), f, (x,), options)


def _loss(draw: random.Random) -> Program:
    function = draw.choice((F.nll_loss, F.cross_entropy, F.multi_margin_loss))
    dtype = draw.choice((torch.uint8, torch.uint8, torch.int8, torch.int16, torch.int32))
    options = {"dynamic_shapes": ({0: "batch"}, {0: "batch"})} if draw.random() < 0.3 else {}
    inputs = (torch.randn(3, 4), torch.tensor([0, 1, 3], dtype=dtype))
    return Program(function.__name__, Loss(function), inputs, options)


def _copied(tensors: Sequence[Tensor]) -> bool:
    """Return whether there are tensors, and `copy.deepcopy` takes them, which excludes sparse rows and columns."""
    return bool(tensors) and all(tensor.layout in (torch.strided, torch.sparse_coo) for tensor in tensors)


def _of_opinfo(draw: random.Random) -> Program:
    table = operators()
    while True:
        name = draw.choice(sorted(table))
        dtypes = [dtype for dtype in dict.fromkeys(DTYPES) if dtype in table[name].dtypes]
        if not dtypes:
            continue
        dtype = draw.choice(dtypes)
        try:
            samples = calls(table[name], dtype, 6)
        except Exception:  # an operator of another build of torch
            continue
        if samples and _copied(tensors := (call := draw.choice(samples)).tensors()):
            return Program(f"{name} {str(dtype)[6:]}", call.eval(), tensors)
