"""`import_function`: import of a function that torch.export rejects, one module per graph, with the graph breaks."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import SymInt, fx, nn
from torch._dynamo.utils import graph_break_reasons
from torch.export import Dim
from torch.fx.traceback import preserve_node_meta

from fx_importer.api.lower import lower
from fx_importer.api.lowered import Lowered
from fx_importer.dynamo.backend_options import LOWERING
from fx_importer.dynamo.tracing import as_new
from fx_importer.errors import UsageError
from fx_importer.output_types import OutputType


@dataclass(frozen=True)
class GraphBreak:
    """A graph break of TorchDynamo."""

    reason: str
    """TorchDynamo's reason, which may have several lines."""
    where: str | None
    """``file:line`` of the user's code."""
    source: str | None
    """The source text of that line."""

    def __str__(self) -> str:
        line = f": {self.source}" if self.source else ""
        return self._message() + (f"\n    at {self.where}{line}" if self.where else "")

    def _message(self) -> str:
        if self.reason.startswith("generic_jump"):
            return "a branch depends on the value of a tensor"
        headline, _, rest = self.reason.strip().partition("\n")
        explained = re.search(r"^ *Explanation: (.*)$", rest, re.MULTILINE)
        return f"{headline}: {explained[1]}" if explained else headline


@dataclass(frozen=True)
class Imported:
    """The graphs and graph breaks of one call of a function."""

    graphs: tuple[Lowered, ...]
    """The graphs in order of their first run. Weights are constants of their modules, as in a program."""
    breaks: tuple[GraphBreak, ...]
    result: Any
    """The result of the call in eager PyTorch."""

    def __str__(self) -> str:
        def sized(each: Lowered) -> str:
            calls = sum(node.op == "call_function" for node in each.exported["main"].graph.nodes)
            (function,) = each.manifest.functions.values()
            takes, returns = len(function.arguments), len(function.results)
            return ", ".join(map(_counted, (calls, takes, returns), ("operation", "argument", "result")))

        kind = f" of {self.graphs[0].options.output_type.value}" if self.graphs else ""
        lines = [f"{_counted(len(self.graphs), 'graph')}{kind}, {_counted(len(self.breaks), 'break')}"]
        lines += [f"  graph {position}: {sized(graph)}" for position, graph in enumerate(self.graphs)]
        lines += [f"  break {position}: {each}" for position, each in enumerate(self.breaks)]
        return "\n".join(lines)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def import_function(
    fn: Callable[..., Any],
    *args: Any,
    dynamic: bool | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Imported:
    """Run ``fn`` once, and lower each graph that TorchDynamo captures.

    For functions and modules that torch.export rejects. ``fn`` really runs, with all its side effects. Functions
    compiled earlier in this process by `torch.compile` are recompiled on their next call.

    Args:
        fn: a function, or a module.
        *args: its positional arguments.
        dynamic: as for `torch.compile`: with True, sizes are symbolic.
        kwargs: keyword arguments of ``fn``.
        **options: ``output_type``, ``mutation``, and the lowering options of `lower`.

    Raises:
        UsageError: for an unknown option.
        FxImporterError: as `lower` does, for the first graph that fails.
    """
    accepted = {"output_type", "mutation", *LOWERING}
    if unknown := [name for name in options if name not in accepted]:
        raise UsageError(
            f"import_function has no option {', '.join(map(repr, unknown))}: accepted are "
            f"'dynamic' (for symbolic sizes), 'kwargs' (the function's keyword arguments), "
            f"{', '.join(map(repr, sorted(accepted)))}"
        )
    OutputType.get(options.get("output_type", OutputType.RAW))  # raises before the function runs
    captured: list[_Captured] = []

    def record(module: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        one = _Captured(module, [_source_of(node) for node in module.graph.find_nodes(op="placeholder")])
        captured.append(one)
        return one.run

    with as_new(fn):
        known = len(graph_break_reasons)
        result = torch.compile(fn, backend=record, dynamic=dynamic)(*args, **(kwargs or {}))
        breaks = tuple(dict.fromkeys(map(_break, graph_break_reasons[known:])))
    names = _names_of(fn)
    ran = [each.bound(names) for each in captured if each.given]
    lowered = tuple(lower(each, *inputs, dynamic_shapes=shapes, **options) for each, inputs, shapes in ran)
    return Imported(lowered, breaks, result)


def _break(reason: Any) -> GraphBreak:
    frame = reason.user_stack[-1] if reason.user_stack else None
    if frame is None:
        return GraphBreak(reason.reason, None, None)
    source = linecache.getline(frame.filename, frame.lineno).strip() or None
    return GraphBreak(reason.reason, f"{frame.filename}:{frame.lineno}", source)


def _source_of(node: fx.Node) -> str:
    source: Any = getattr(node, "_dynamo_source", None)
    return getattr(source, "name", "") if isinstance(getattr(source, "name", ""), str) else source.name()


def _names_of(fn: Any) -> dict[int, str]:
    """Return the state dict names of the tensors of a module by identity."""
    if not isinstance(fn, nn.Module):
        return {}
    return {id(each): name for name, each in (*fn.named_parameters(), *fn.named_buffers())}


@dataclass
class _Captured:
    module: fx.GraphModule
    sources: list[str]
    """The TorchDynamo source of each input of the graph, as Python: ``L['x']``."""
    given: list[Any] = field(default_factory=list[Any])
    """Copies of the inputs of the first run, made before it."""

    def run(self, *given: Any) -> Any:
        if not self.given:
            self.given = [_kept(each, source) for each, source in zip(given, self.sources, strict=True)] or [None]
        return self.module.forward(*given)

    def bound(self, names: Mapping[int, str]) -> tuple[nn.Module, tuple[Any, ...], Any]:
        """Return the graph as a module that holds its weights, its inputs, and its dynamic shapes."""
        bound, inputs = _Bound(self.module), list[Any]()
        symbols = dict(self._symbols())
        shapes: list[Any] = []
        nodes = self.module.graph.find_nodes(op="placeholder")
        for node, source, value in zip(nodes, self.sources, self.given, strict=False):
            example = node.meta.get("example_value")
            if isinstance(value, torch.Tensor) and _is_held(value, source):
                bound.hold(names.get(id(value)) or _path(source), value)
            elif isinstance(example, SymInt) and example.node.expr in symbols:
                bound.places.append(symbols[example.node.expr])
            else:
                bound.places.append(len(inputs))
                inputs.append(value)
                shapes.append(_shapes(example))
                bound.names.append(_path(source).replace(".", "_") or node.name)
        bound.sign()
        return bound, tuple(inputs), tuple(shapes) if any(shapes) else None

    def _symbols(self) -> Iterator[tuple[Any, tuple[int, int]]]:
        """Yield each symbolic size of the inputs, with the position of the input and the axis."""
        for place, node in reversed(list(enumerate(self.module.graph.find_nodes(op="placeholder")))):
            if isinstance(example := node.meta.get("example_value"), torch.Tensor):
                for axis, size in enumerate(example.shape):
                    if isinstance(size, SymInt):
                        yield size.node.expr, (place, axis)


def _kept(value: Any, source: str) -> Any:
    """Return a copy of an input. Weights are not copied."""
    if not isinstance(value, torch.Tensor) or _is_held(value, source) or isinstance(value, SymInt):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _is_held(value: torch.Tensor, source: str) -> bool:
    """Return whether an input of a graph is a parameter or a buffer of a module."""
    return isinstance(value, nn.Parameter) or "_buffers[" in source or "_parameters[" in source


def _path(source: str) -> str:
    """Return ``first.weight`` for ``L['self']._modules['first']._parameters['weight']``."""
    words = re.findall(r"\w+", re.sub(r"\b(L|G|self|_modules|_parameters|_buffers)\b", " ", source))
    return ".".join(f"_{word}" if word[0].isdigit() and position == 0 else word for position, word in enumerate(words))


def _shapes(example: Any) -> Any:
    if isinstance(example, SymInt):
        return Dim.DYNAMIC
    if isinstance(example, torch.Tensor):
        return {axis: Dim.AUTO for axis, size in enumerate(example.shape) if isinstance(size, SymInt)} or None
    return None


class _Bound(nn.Module):
    """A graph with its weights as parameters and buffers."""

    def __init__(self, graph: fx.GraphModule):
        super().__init__()
        self.__dict__["graph"] = graph  # not a submodule: the graph has all its tensors as inputs
        self.places: list[Any] = []
        """For each input of the graph: the name of a weight, the position of an input, or a pair of a graph input and
        an axis."""
        self.names: list[str] = []

    def hold(self, name: str, tensor: torch.Tensor) -> None:
        *path, last = (name or "state").split(".")
        owner: nn.Module = self
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner = owner.get_submodule(part)
        if isinstance(tensor, nn.Parameter):
            owner.register_parameter(last, tensor)
        else:
            owner.register_buffer(last, tensor)
        self.places.append(name or "state")

    def sign(self) -> None:
        """Define `forward` with the graph's inputs as parameters, named as in the user's code."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        taken = [f"{name}_{i}" if name in self.names[:i] else name for i, name in enumerate(self.names)]

        def forward(*given: Any) -> Any:
            values: list[Any] = []
            for place in self.places:
                if isinstance(place, str):
                    owner, _, last = place.rpartition(".")
                    values.append(getattr(self.get_submodule(owner), last))
                else:
                    values.append(place if isinstance(place, tuple) else given[place])
            values = [values[value[0]].shape[value[1]] if isinstance(value, tuple) else value for value in values]
            with preserve_node_meta():  # keep source locations
                return fx.Interpreter(self.__dict__["graph"]).run(*values)

        forward.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in taken])
        self.forward = forward
