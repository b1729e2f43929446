"""Random programs as data: inputs and a list of calls, which run in eager and print as a Python module."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from testing.fuzzing.inputs import Input, direction, source_of

OTHER_SIZES = {2: 3, 3: 5, 4: 6, 5: 2, 6: 4, 7: 3, 8: 4, 11: 4, 13: 6}
"""The sizes of a further run of a dynamic program, by the sizes of the example."""


@dataclass(frozen=True)
class Ref:
    """The value of this number: first the inputs, then the results of calls."""

    index: int

    def __repr__(self) -> str:
        return f"v{self.index}"


@dataclass(frozen=True)
class Size:
    """The size of an axis of a value."""

    of: Ref
    axis: int

    def __repr__(self) -> str:
        return f"{self.of}.shape[{self.axis}]"


@dataclass(frozen=True)
class Call:
    """An operator with its arguments. Its tensors are the next values."""

    target: str
    """A dotted name: ``torch.add``."""
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: int = 0
    """The number of its results, which are a tuple; 0 for one, a tensor or a number."""

    def function(self) -> Callable[..., Any]:
        """Return what ``target`` names."""
        return named(self.target)


def named(target: str) -> Callable[..., Any]:
    """Return the function of a dotted name in torch or a module of Python."""
    root, *path = target.split(".")
    found: Any = importlib.import_module(root)
    for each in path:
        found = getattr(found, each)
    return found


Around = Callable[[Call, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Called for each call with its function and its arguments; returns its result."""


@dataclass(frozen=True)
class Program:
    """Inputs, buffers among them, calls, and the values that are returned."""

    inputs: tuple[Input, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Ref, ...]
    dynamic: bool = False
    training: bool = False
    """Whether the gradients of the outputs by the floating-point inputs are returned too."""
    quantized: bool = False
    other_sizes: tuple[Mapping[int, int], ...] = ()
    """The sizes of further runs of a dynamic program, by the sizes of the example."""
    overrides: int = 0
    """The number that chooses ``keep=`` and ``extra=``; 0 for neither."""
    threaded: bool = False
    """Whether two threads lower and call it at the same time."""

    @property
    def arguments(self) -> tuple[Input, ...]:
        return tuple(each for each in self.inputs if not each.buffer)

    @property
    def runs(self) -> int:
        """The number of calls of one model: several if it has state."""
        return 3 if any(each.buffer for each in self.inputs) else 1

    def tensors(self, sizes: Mapping[int, int] | None = None, call: int = 0) -> tuple[Any, ...]:
        """Return new arguments of a call: of the example's sizes, or with other ones for some."""
        return tuple(each.tensor(sizes or {}, call) for each in self.arguments)

    def model(self, around: Around | None = None) -> Model:
        """Return a new model with its buffers as they are initially."""
        return Model(self, around)

    def callable(self) -> Callable[..., Any]:
        """Return what is exported: the model, or the graph of its gradients where sizes are static."""
        model = self.model()
        if not self.training or self.dynamic:
            return model
        return make_fx(model, tracing_mode="fake")(*self.tensors())

    def dynamic_shapes(self, is_flat: bool = False) -> Any:
        """Return what `torch.export` takes: every size that may be is dynamic.

        ``is_flat`` is whether the callable names its arguments, as quantized modules do, and takes no ``*inputs``.
        """
        if not self.dynamic:
            return None
        sizes = tuple(_every_size(each, torch.export.Dim.AUTO) for each in self.arguments)
        return sizes if is_flat else (sizes,)

    def source(self) -> str:
        """Return a Python module with a model, and ``build()``, which returns it with its inputs."""
        values = {each: f"v{i}" for i, each in enumerate(self.inputs)}
        buffers = [each for each in self.inputs if each.buffer]
        taken = ", ".join(values[each] for each in self.arguments)
        lines = [*_HEADER, "class Model(torch.nn.Module):"]
        if buffers:
            lines += ["    def __init__(self):", "        super().__init__()"]
            lines += [f'        self.register_buffer("{values[e]}", {source_of(e)})' for e in buffers]
            lines += [""]
        lines += [f"    def forward(self, {taken}):"]
        lines += [f"        {values[e]} = self.{values[e]}" for e in buffers]
        leaves = [values[e] for e in self.arguments if e.differentiable]
        if self.training and self.dynamic:
            lines += [f"        # gradients by {', '.join(leaves)}: see `Model.pulled_back`"]
        elif self.training:
            lines += [f"        {name} = {name}.detach().requires_grad_()" for name in leaves]
        at = len(self.inputs)
        for call in self.calls:
            left = "".join(f"v{at + i}, " for i in range(call.results)) or f"v{at} "
            given = [_repr(each) for each in call.args] + [f"{k}={_repr(v)}" for k, v in call.kwargs.items()]
            lines.append(f"        {left}= {call.target}({', '.join(given)})")
            at += max(call.results, 1)
        returned = "".join(f"{each}, " for each in self.outputs)
        if self.training and not self.dynamic:
            lines += [f"        return gradients(({returned}), ({''.join(f'{name}, ' for name in leaves)}))"]
        else:
            lines += [f"        return ({returned})"]
        lines += ["", "", "def build():"]
        if self.dynamic:
            lines += [f"    # dynamic_shapes: Dim.AUTO for every axis; then with sizes {self.other_sizes}"]
        lines += [f"    # overrides: {self.overrides}, threaded: {self.threaded}, runs: {self.runs}"]
        inputs = "".join(f"\n        {source_of(each)}," for each in self.arguments)
        model = "make_fx(Model(), tracing_mode='fake')(*inputs)" if self.training and not self.dynamic else "Model()"
        lines += [f"    inputs = ({inputs}\n    )", f"    return {model}, inputs", ""]
        return "\n".join(lines)


_HEADER = (
    "import operator",
    "from math import inf, nan",
    "",
    "import torch",
    "from torch.fx.experimental.proxy_tensor import make_fx",
    "",
    "import testing.fuzzing.program",
    "from testing.fuzzing.program import gradients",
    "",
    "",
)


class Model(nn.Module):
    """A program as a module."""

    def __init__(self, program: Program, around: Around | None = None):
        super().__init__()
        self.program, self.around = program, around
        for i, each in enumerate(program.inputs):
            if each.buffer:
                self.register_buffer(f"v{i}", each.tensor({}))

    def forward(self, *inputs: Any) -> Any:
        given = iter(inputs)
        values = [getattr(self, f"v{i}") if e.buffer else next(given) for i, e in enumerate(self.program.inputs)]
        if self.program.training and self.program.dynamic:
            return self.pulled_back(values)
        if self.program.training:
            pairs = zip(self.program.inputs, values, strict=True)
            values = [value.detach().requires_grad_() if each.differentiable else value for each, value in pairs]
        leaves = tuple(each for each in values if isinstance(each, Tensor) and each.requires_grad)
        outputs = self.outputs(values)
        return gradients(outputs, leaves) if self.program.training else outputs

    def outputs(self, values: list[Any]) -> tuple[Any, ...]:
        """Run the calls on the inputs ``values``."""
        for call in self.program.calls:
            values += run_call(call, values, self.around)
        return tuple(values[each.index] for each in self.program.outputs)

    def pulled_back(self, values: list[Any]) -> tuple[Tensor, ...]:
        """Return the outputs and gradients as `gradients` does, by ``torch.func``, which torch.export traces."""
        leaves = [i for i, each in enumerate(self.program.inputs) if each.differentiable]

        def run(*given: Tensor) -> tuple[Any, ...]:
            known = dict(zip(leaves, given, strict=True))
            outputs = self.outputs([known.get(i, value) for i, value in enumerate(values)])
            differentiable = [x for x in outputs if isinstance(x, Tensor) and x.is_floating_point()]
            return (*differentiable, given[0].new_zeros(())), outputs  # vjp wants one

        if not leaves:
            return self.outputs(values)
        pulled: Any = torch.func.vjp(run, *(values[i] for i in leaves), has_aux=True)
        found, pullback, outputs = pulled
        return (*outputs, *pullback(tuple(map(direction, found))))


def run_call(call: Call, values: Sequence[Any], around: Around | None = None) -> list[Any]:
    """Return the results of a call with the values before it."""
    args = tuple(resolved(each, values) for each in call.args)
    kwargs = {key: resolved(each, values) for key, each in call.kwargs.items()}
    function = call.function()
    found = around(call, function, args, kwargs) if around else function(*args, **kwargs)
    return [*found] if isinstance(found, tuple | list) else [found]


def _every_size(given: Input, of: Any) -> Any:
    """Return what `torch.export` takes for an input: ``of`` for every size, and for an integer."""
    if given.number:
        return of if given.dtype is torch.int64 else None
    return dict.fromkeys(range(len(given.shape)), of)


def resolved(argument: Any, values: Sequence[Any]) -> Any:
    """Return an argument with values in place of references."""
    if isinstance(argument, Ref):
        return values[argument.index]
    if isinstance(argument, Size):
        return values[argument.of.index].shape[argument.axis]
    if isinstance(argument, list | tuple):
        return type(argument)(resolved(each, values) for each in argument)
    return argument


def gradients(outputs: tuple[Tensor, ...], leaves: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the outputs, and the gradients of the differentiable ones in fixed directions, by ``leaves``."""
    of = [each for each in dict.fromkeys(outputs) if each.requires_grad]
    found = torch.autograd.grad(of, leaves, [direction(each) for each in of], materialize_grads=True) if of else ()
    return (*(each.detach() for each in outputs), *found)


def assigned(x: Tensor, index: Any, value: Any) -> Tensor:
    """Write ``value`` into a part of ``x``, and return ``x``."""
    x[index] = value
    return x


def _repr(argument: Any) -> str:
    if isinstance(argument, list | tuple):
        inside = ", ".join(map(_repr, argument))
        return f"[{inside}]" if isinstance(argument, list) else f"({inside},)"
    return repr(argument)
