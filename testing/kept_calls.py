"""Calls of ATen operators with arguments of many dtypes, recorded while PyTorch computes OpInfo's samples."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fx_importer.decompositions.engine.kept.conditions import argument_text, conditions_of
from testing.op_cases import UNDEFINED, operators

DTYPES = (
    *(torch.float32, torch.int64, torch.bool, torch.float16, torch.bfloat16, torch.float64),
    *(torch.int32, torch.int8, torch.uint8, torch.int16),
)
COMPOSED = ("masked", "linalg", "fft", "signal", "ops")
"""Namespaces of functions that are composed of operators with samples of their own, or of none that C++ lowers."""
SPECIAL = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 0.5)
LARGE = (100.0, -100.0, 88.5, -88.5, 30.0, -30.0, 1e-4, -1e-4, 2e-7, -2e-7, 5000.0, -5000.0, 0.5, -0.5, 3.0, -3.0)


@dataclass(frozen=True)
class RecordedCall:
    """A call of an operator."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def key(self) -> str:
        """What the figures are kept for: the dtype, and what is known of the arguments in a program."""
        return " ".join(conditions_of(self.operator, self.args, self.kwargs))

    @property
    def described(self) -> str:
        """All arguments, with the shapes of tensors."""
        return argument_text((self.args, dict(self.kwargs)))

    def module(self) -> CallOfOperator:
        """Return a model of the call."""
        return CallOfOperator(self)

    def tensors(self) -> list[Tensor]:
        """Return the tensors among the arguments, cloned."""
        leaves = pytree.tree_leaves((self.args, dict(self.kwargs)))
        return [leaf.detach().clone() for leaf in leaves if isinstance(leaf, Tensor)]


class CallOfOperator(nn.Module):
    """A call of an operator with its tensors as inputs."""

    def __init__(self, call: RecordedCall):
        super().__init__()
        self._operator = call.operator
        self._leaves, self._spec = pytree.tree_flatten((call.args, dict(call.kwargs)))

    def forward(self, *tensors: Tensor) -> Any:
        """Call the operator."""
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return self._operator(*args, **kwargs)


class _Recorder(TorchDispatchMode):
    def __init__(self, wanted: Collection[Any], found: dict[tuple[Any, str], list[RecordedCall]], most: int):
        super().__init__()
        self._wanted, self._found, self._most = wanted, found, most

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        record(self._found, self._wanted, RecordedCall(func, args, kwargs or {}), self._most)
        return func(*args, **(kwargs or {}))


def record(
    found: dict[tuple[Any, str], list[RecordedCall]], wanted: Collection[Any], call: RecordedCall, most: int
) -> None:
    """Add ``call`` to ``found``, unless there are ``most`` calls of its kind, or it is larger than needed."""
    if call.operator not in wanted:
        return
    tensors = [leaf for leaf in pytree.tree_leaves((call.args, dict(call.kwargs))) if isinstance(leaf, Tensor)]
    usual = all(type(x) is Tensor and x.layout is torch.strided and x.numel() <= 20000 for x in tensors)
    if not tensors or not usual:
        return
    calls = found.setdefault((call.operator, call.key), [])
    if len(calls) < most and all(call.described != other.described for other in calls):
        frozen = pytree.tree_map_only(Tensor, lambda x: x.detach().clone().contiguous(), (call.args, dict(call.kwargs)))
        calls.append(RecordedCall(call.operator, *frozen))


def recorded(
    wanted: Collection[Any], *, names: Iterable[str] = (), samples: int = 8, most: int = 1
) -> list[RecordedCall]:
    """Return at most ``most`` calls of each kind of each of ``wanted``, from OpInfo's samples in every dtype."""
    found: dict[tuple[Any, str], list[RecordedCall]] = {}
    database = operators()
    by_packet: dict[str, list[Any]] = {}
    for operator in wanted:
        by_packet.setdefault(operator.overloadpacket.__name__, []).append(operator)
    for name in names or database:
        op = database[name]
        if name.split(".")[0] in (*UNDEFINED, *COMPOSED):
            continue
        for dtype in (each for each in DTYPES if each in op.dtypes):
            _record_samples(op, dtype, samples, wanted, by_packet, found, most)
    return [call for calls in found.values() for call in calls]


def _record_samples(
    op: Any,
    dtype: torch.dtype,
    samples: int,
    wanted: Collection[Any],
    by_packet: Mapping[str, list[Any]],
    found: dict[tuple[Any, str], list[RecordedCall]],
    most: int,
) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings(), torch.no_grad(), suppress(Exception):
        warnings.simplefilter("ignore")
        for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=False), samples):
            with suppress(Exception), _Recorder(wanted, found, most):
                op.op(sample.input, *sample.args, **sample.kwargs)
            for operator in by_packet.get(op.aten_name.split(".")[-1], ()):  # composites, which no mode sees
                call = RecordedCall(operator, (sample.input, *sample.args), sample.kwargs)
                with suppress(Exception):
                    operator(*call.args, **call.kwargs)
                    record(found, wanted, call, most)


def value_sets(call: RecordedCall) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield inputs for ``call``, by name: other values of the same shapes and dtypes that eager takes."""
    tensors = call.tensors()
    yield "usual", tensors
    names = _argument_names(call)
    changes: dict[str, Callable[[str, Tensor], Tensor]] = {
        "of the other sign": lambda _, x: -x if x.is_floating_point() or _is_signed(x) else x,
        "large or small": lambda _, x: _cycled(x, LARGE),
        "NaN and infinities": lambda _, x: _cycled(x, SPECIAL),
        "negative indices": _negative,
        "empty masks": lambda _, x: torch.zeros_like(x) if x.dtype is torch.bool else x,
        "full masks": lambda _, x: torch.ones_like(x) if x.dtype is torch.bool else x,
    }
    for name, change in changes.items():
        changed = [change(*pair) for pair in zip(names, tensors, strict=True)]
        if all(torch.equal(a, b) for a, b in zip(changed, tensors, strict=True)):
            continue
        with suppress(Exception):
            call.module()(*(each.clone() for each in changed))
            yield name, changed


def without_rows(call: RecordedCall, program: ExportedProgram) -> list[Tensor]:
    """Return inputs for ``call`` whose dynamic axes in ``program`` have no elements; none if eager refuses them."""
    nodes = program.graph.find_nodes(op="placeholder")
    axes = [[at for at, size in enumerate(node.meta["val"].shape) if type(size) is not int] for node in nodes]
    inputs = call.tensors()
    for dynamic, (position, x) in zip(axes, enumerate(inputs), strict=True):
        for axis in dynamic:
            x = x.narrow(axis, 0, 0)
        inputs[position] = x.contiguous()
    with suppress(Exception):
        call.module()(*(x.clone() for x in inputs))
        return inputs
    return []


def _is_signed(x: Tensor) -> bool:
    return x.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)


def _cycled(x: Tensor, values: tuple[float, ...]) -> Tensor:
    if not x.is_floating_point() or not x.numel():
        return x
    largest = torch.finfo(x.dtype).max
    usable = torch.tensor([each for each in values if not abs(each) > largest or abs(each) == float("inf")])
    repeated = usable.repeat(x.numel() // len(usable) + 1)[: x.numel()]
    return repeated.reshape(x.shape).to(x.dtype)


def _negative(name: str, x: Tensor) -> Tensor:
    """Return -1 where an index is the first one."""
    if "ind" not in name or not _is_signed(x) or not x.numel():
        return x
    return torch.where(x == x.min(), torch.full((), -1, dtype=x.dtype), x)


def _argument_names(call: RecordedCall) -> list[str]:
    """Return the name of the argument that holds each tensor."""
    schema = call.operator._schema.arguments
    pairs = [*zip((argument.name for argument in schema), call.args, strict=False), *call.kwargs.items()]
    return [name for name, value in pairs for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def counted(calls: Iterable[RecordedCall]) -> Counter[str]:
    """Return the number of calls of each operator."""
    return Counter(str(call.operator) for call in calls)
