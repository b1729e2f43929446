"""The graphs that TorchDynamo captures of one call of a function, and the graph breaks between them."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import torch
from torch import SymInt, Tensor, fx, nn
from torch._dynamo.exc import TorchDynamoException
from torch.export import Dim
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fx_importer.dynamo.break_reasons import logged_breaks, source_at, untraceable, user_lines
from fx_importer.dynamo.graph_module import (
    GraphInput,
    HeldInput,
    NamedGraph,
    PassedInput,
    SizeInput,
    ViewInput,
    without_transforms,
)
from fx_importer.dynamo.torch_compile import with_checks
from fx_importer.dynamo.tracing import as_new, own_settings
from fx_importer.errors import UnsupportedProgramError
from fx_importer.fx_graph.function_signature import Fixed
from fx_importer.fx_graph.graph_break import GraphBreak
from fx_importer.fx_graph.programs import storage_key
from fx_importer.verification.eager_reference import copied


@dataclass(frozen=True)
class CapturedCall:
    """The graphs of a call that ran, in the order of their first run, the graph breaks, and the result."""

    graphs: tuple[CapturedGraph, ...]
    breaks: tuple[GraphBreak, ...]
    result: Any

    def named_breaks(self, names: Sequence[str]) -> tuple[GraphBreak, ...]:
        """Return the breaks with functions ``names`` in place of the numbers of graphs."""

        def name(number: str | None) -> str | None:
            return names[int(number)] if number is not None and int(number) in range(len(names)) else None

        return tuple(
            replace(graph_break, after=name(graph_break.after), before=name(graph_break.before))
            for graph_break in self.breaks
        )


@dataclass
class CapturedGraph:
    """A graph, and its inputs in its first run."""

    module: fx.GraphModule
    sources: list[str]
    """The TorchDynamo source of each input of the graph, as Python: ``L['x']``."""
    values: list[Any] = field(default_factory=list[Any])
    """The inputs: copies made before the run, which alias like the originals. Weights and state are not copied."""
    names: dict[int, str] = field(default_factory=dict[int, str])
    """The names of the inputs that are weights or state, by position."""
    written: frozenset[int] = frozenset()
    """The positions of the inputs that the graph writes to."""
    made_in_call: frozenset[int] = frozenset()
    """The positions of the inputs that the function has made itself, which are neither the user's nor state."""
    numbers: dict[str, Fixed] = field(default_factory=dict[str, Fixed])
    """The numbers of Python that the graph has as constants, by TorchDynamo's name: ``n``, ``___stack1[0]``."""

    guarded: bool = False
    """Whether ``numbers`` is complete."""

    def bound(self, name: str, training: bool) -> tuple[NamedGraph, tuple[Any, ...], Any]:
        """Return the graph as a module that holds its weights, its inputs, and its dynamic shapes.

        Raises:
            UnsupportedProgramError: if the graph writes to memory that its inputs share in a way that is not known.
        """
        nodes = self.module.graph.find_nodes(op="placeholder")
        symbols, views = dict(self._symbols()), dict(self._views(name))
        inputs, shapes = list[Any](), list[Any]()
        origins, parameters, tensors = list[GraphInput](), list[str](), dict[str, Tensor]()
        for position, (node, source, value) in enumerate(zip(nodes, self.sources, self.values, strict=True)):
            example = node.meta.get("example_value")
            if position in self.names:
                tensors[self.names[position]] = value
                origins.append(HeldInput(self.names[position]))
            elif isinstance(example, SymInt) and example.node.expr in symbols:
                origins.append(symbols[example.node.expr])
            elif position in views:
                origins.append(views[position])
            else:
                origins.append(PassedInput(len(inputs)))
                inputs.append(value)
                shapes.append(_shapes(example))
                parameters.append(path_of(source).replace(".", "_") or node.name)
        graph = without_transforms(with_checks(self.module), self.values)
        copies = sorted(self.written & self.made_in_call - views.keys())
        module = NamedGraph.of(name, graph, self.module.code, origins, parameters, tensors, copies)
        return module.train(training), tuple(inputs), tuple(shapes) if any(shapes) else None

    def _symbols(self) -> Iterator[tuple[Any, SizeInput]]:
        """Yield each symbolic size of the inputs, with the position of the input and the axis."""
        for number, node in reversed(list(enumerate(self.module.graph.find_nodes(op="placeholder")))):
            if isinstance(example := node.meta.get("example_value"), Tensor):
                for axis, size in enumerate(example.shape):
                    if isinstance(size, SymInt):
                        yield size.node.expr, SizeInput(number, axis)

    def _views(self, name: str) -> Iterator[tuple[int, ViewInput]]:
        """Yield the inputs that are views of a contiguous one, where the graph writes to the memory that they share.

        Raises `UnsupportedProgramError` for other inputs that share this memory.
        """
        groups: dict[int, list[int]] = {}
        for position, value in enumerate(self.values):
            if position not in self.names and _has_storage(value):
                groups.setdefault(storage_key(value), []).append(position)
        dynamic = any(isinstance(node.meta.get("example_value"), SymInt) for node in self.module.graph.nodes)
        for group in groups.values():
            if len(group) == 1 or not self.written & set(group):
                continue
            base = max(group, key=lambda position: self.values[position].numel())
            views = {} if dynamic else dict(_views_of(base, self.values, group))
            if dynamic or (len(views) + 1 < len(group) and _overlap([self.values[position] for position in group])):
                shared = ", ".join(f"'{path_of(self.sources[position])}'" for position in group)
                raise UnsupportedProgramError(
                    f"{name} writes to memory that {shared} share"
                    + (", and sizes are dynamic: pass dynamic=False" if dynamic else ", which is not one of them whole")
                    + ", or write to copies of them (`.clone()`)",
                    [],
                )
            yield from views.items()


def _views_of(base: int, values: Sequence[Any], group: Sequence[int]) -> Iterator[tuple[int, ViewInput]]:
    """Yield the inputs of ``group`` that are views of the input ``base``."""
    whole: Tensor = values[base]
    for position in group if whole.is_contiguous() else ():
        view: Tensor = values[position]
        offset = int(view.storage_offset()) - int(whole.storage_offset())
        last = offset + sum((size - 1) * stride for size, stride in zip(view.shape, view.stride(), strict=True))
        if position != base and view.dtype is whole.dtype and offset >= 0 and last < whole.numel():
            yield position, ViewInput(base, tuple(view.shape), view.stride(), offset)


def _overlap(tensors: Sequence[Tensor]) -> bool:
    """Return whether tensors of one storage share elements."""
    count = max(tensor.untyped_storage().nbytes() // tensor.element_size() for tensor in tensors)
    seen = torch.zeros(count, dtype=torch.int32)
    for tensor in tensors:
        elements = torch.zeros(count, dtype=torch.int32)
        elements.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(1)
        seen += elements
    return len({tensor.dtype for tensor in tensors}) > 1 or bool((seen > 1).any())


def captured_call(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: bool | None
) -> CapturedCall:
    """Run ``fn`` once, and return the graphs that TorchDynamo captures.

    Raises:
        ExportError: if TorchDynamo fails at code that it neither traces nor leaves to Python.
    """
    recorder = _Recorder(fn, (args, kwargs))
    try:
        with as_new(fn), own_settings(), logged_breaks(recorder.add_break), OperatorsBetween(recorder):
            result = recorder.compiled(fn, dynamic)(*args, **kwargs)
    except TorchDynamoException as error:
        raise untraceable(getattr(fn, "__name__", type(fn).__name__), error) from error
    return CapturedCall(*recorder.finished(), result)


class _Recorder:
    """The backend of TorchDynamo that keeps graphs and runs them in eager PyTorch."""

    def __init__(self, fn: Any, inputs: Any):
        self._fn = fn
        self._held = {id(tensor): tensor for tensor in _held_tensors()}
        own = fn if isinstance(fn, nn.Module) else nn.Module()
        self._own = {id(tensor): name for name, tensor in (*own.named_parameters(), *own.named_buffers())}
        self._names: dict[tuple[Any, ...], str] = {}
        self._inputs = [leaf for leaf in pytree.tree_leaves(inputs) if _has_storage(leaf)]
        for tensor in self._inputs:
            self._held.pop(id(tensor), None)
        self._given = set(map(storage_key, self._inputs))
        self._captured: list[CapturedGraph] = []
        self._order: list[int] = []
        """The numbers of the graphs that ran, in order of their first run."""
        self._breaks: dict[tuple[str, str], tuple[GraphBreak, int]] = {}
        """The breaks, by where TorchDynamo stopped and why, with the number of graphs that had run."""
        self._operators: dict[int, dict[str, str]] = {}
        """The operators that run outside of the graphs and their lines, by the last graph that ran, in this order."""
        self._last, self._in_graph = -1, False
        self._ending: dict[str, int] = {}
        """The number of the graph that ends at a break."""

    def compiled(self, fn: Callable[..., Any], dynamic: bool | None) -> Callable[..., Any]:
        """Return ``fn`` compiled with this backend."""
        options: Any = {"guard_filter_fn": self._keep_numbers}
        return torch.compile(fn, backend=self.record, dynamic=dynamic, options=options)

    def _keep_numbers(self, guards: Sequence[Any]) -> list[bool]:
        """Keep the numbers that the guards of the last graph compare, and leave all guards as they are.

        An attribute of a module counts if the call has changed it since, as a counter.
        """
        for guard in guards if self._captured and not self._captured[-1].guarded else ():
            if guard.guard_type in _EQUAL and type(guard.value) in (bool, int, float):
                self._captured[-1].numbers[guard.name] = guard.value
        if self._captured:
            self._captured[-1].guarded = True
        return [True] * len(guards)

    def _is_specialized(self, name: str, value: Fixed) -> bool:
        if not name.startswith("self"):
            return _VARIABLE.fullmatch(name) is not None
        try:
            return attrgetter(name.removeprefix("self."))(self._fn) != value
        except (AttributeError, TypeError):  # of another module, or an item
            return False

    def add_break(self, place: str, graph_break: GraphBreak) -> None:
        self._breaks.setdefault((place, graph_break.message), (graph_break, len(self._order)))

    def add_operator(self, name: str) -> None:
        """Add an operator that runs outside of the graphs."""
        if not self._in_graph and name not in _NO_WORK:
            file, line = next(user_lines(), ("", ""))
            self._operators.setdefault(self._last, {}).setdefault(name, f"{file}:{line}")

    def record(self, module: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        number = len(self._captured)
        sources = [_source_of(node) for node in module.graph.find_nodes(op="placeholder")]
        self._captured.append(captured := CapturedGraph(module, sources))
        reason: Any = getattr(module, "compile_subgraph_reason", None)
        if reason is not None and reason.graph_break and reason.user_stack:
            frame = reason.user_stack[-1]
            self._ending.setdefault(f"{frame.filename}:{frame.lineno}", number)

        def run(*values: Any) -> Any:
            self._in_graph = True
            try:
                return first(*values) if number not in self._order else module.forward(*values)
            finally:
                self._in_graph, self._last = False, self._order.index(number)

        def first(*values: Any) -> Any:
            self._order.append(number)
            self._keep(captured, values)
            versions = list(map(_version, values))
            result = module.forward(*values)
            captured.written = frozenset(i for i, value in enumerate(values) if _version(value) != versions[i])
            return result

        return run

    def _keep(self, captured: CapturedGraph, values: Sequence[Any]) -> None:
        """Keep the inputs of a graph, before it runs."""
        sources = captured.sources
        state = {i for i, value in enumerate(values) if id(value) in self._held}
        captured.names = {i: self._name(values[i], sources[i]) for i in sorted(state)}
        apart = copied([None if i in state else value for i, value in enumerate(values)])
        captured.values = [_aliased(values[i]) if i in state else value for i, value in enumerate(apart)]
        captured.made_in_call = frozenset(
            i
            for i, value in enumerate(values)
            if i not in state and _LOCAL.fullmatch(sources[i]) and _has_storage(value)
            if storage_key(value) not in self._given
        )

    def _name(self, tensor: Tensor, source: str) -> str:
        """Return the name of a weight or of state: in the state dict of ``fn``, or by TorchDynamo's source.

        A parameter whose values the call replaces has a name for each.
        """
        key = (id(tensor), tensor.data_ptr() if tensor.layout is torch.strided else 0, tensor.dtype)
        if key not in self._names:
            name, used = self._own.get(id(tensor)) or path_of(source) or "state", set(self._names.values())
            names = (f"{name}_{number}" if number else name for number in range(len(used) + 1))
            self._names[key] = next(candidate for candidate in names if candidate not in used)
        return self._names[key]

    def finished(self) -> tuple[tuple[CapturedGraph, ...], tuple[GraphBreak, ...]]:
        """Return the graphs that ran, and the breaks, which name the functions before and after by number."""
        ends = [graph_break.where for (place, _), (graph_break, _) in self._breaks.items() if place in self._ending]
        breaks: dict[int, list[GraphBreak]] = {}
        for (place, _), (graph_break, ran) in self._breaks.items():
            ending = self._ending.get(place)
            if ending is None and graph_break.where in ends:
                continue  # of a library's function called at the line of another break
            breaks.setdefault(self._order.index(ending) if ending in self._order else ran - 1, []).append(graph_break)
        for last, operators in self._operators.items():
            there = breaks.setdefault(last, [])
            if not there:
                where = next(iter(operators.values()))
                there.append(GraphBreak("", where, source_at(where), "TorchDynamo leaves this line to Python"))
            there[-1] = replace(there[-1], operators=tuple(operators))
        numbered = (
            replace(graph_break, after=str(last), before=str(last + 1))
            for last, between in sorted(breaks.items())
            for graph_break in between
        )
        graphs = [self._captured[number] for number in self._order]
        for graph in graphs:
            graph.numbers = {name: value for name, value in graph.numbers.items() if self._is_specialized(name, value)}
        return tuple(graphs), tuple(numbered)


class OperatorsBetween(TorchDispatchMode):
    """Adds the operators that run outside of the graphs to a recorder."""

    supports_higher_order_operators = True

    def __init__(self, recorder: _Recorder):
        super().__init__()
        self._recorder = recorder

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True: TorchDynamo compiles in this mode."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._recorder.add_operator(str(func))
        return func(*args, **(kwargs or {}))


_NO_WORK = frozenset(f"aten.{name}.default" for name in ("detach", "alias", "lift_fresh", "_local_scalar_dense"))
"""Operators that compute nothing."""

_EQUAL = ("CONSTANT_MATCH", "EQUALS_MATCH")
_VARIABLE = re.compile(r"\w+(\[[^\]]+\])*")
"""TorchDynamo's names of local variables in guards, and of their items."""

_LOCAL = re.compile(r"L\['\w+'\]|___stack\d+")
"""TorchDynamo's sources of the local variables of a function."""


def _held_tensors() -> Iterator[Tensor]:
    """Yield the parameters and buffers that exist."""
    parameters, modules = _classes_below(nn.Parameter), _classes_below(nn.Module)
    for value in gc.get_objects():  # hundreds of thousands
        if (kind := type(value)) in parameters:
            yield value
        elif kind in modules and "_buffers" in vars(value):
            yield from (buffer for buffer in value._buffers.values() if buffer is not None)


def _classes_below(base: type) -> set[type]:
    """Return ``base`` and all classes that derive from it."""
    classes = {base}
    for derived in type.__subclasses__(base):
        if derived not in classes:
            classes |= _classes_below(derived)
    return classes


def _aliased(tensor: Tensor) -> Tensor:
    """Return a tensor of the same memory, which stays when the values of a parameter are replaced."""
    alias = tensor.detach()
    return nn.Parameter(alias, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else alias


def _has_storage(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided and type(value) in (Tensor, nn.Parameter)


def _version(value: Any) -> int:
    return value._version if isinstance(value, Tensor) and not value.is_inference() else 0


def _source_of(node: fx.Node) -> str:
    source: Any = getattr(node, "_dynamo_source", None)
    return getattr(source, "name", "") if isinstance(getattr(source, "name", ""), str) else source.name()


def path_of(source: str) -> str:
    """Return ``first.weight`` for ``L['self']._modules['first']._parameters['weight']``."""
    words = re.findall(r"\w+", re.sub(r"\b(L|G|self|_modules|_parameters|_buffers)\b", " ", source))
    return ".".join(f"_{word}" if word[0].isdigit() and position == 0 else word for position, word in enumerate(words))


def _shapes(example: Any) -> Any:
    if isinstance(example, SymInt):
        return Dim.DYNAMIC
    if isinstance(example, Tensor):
        return {axis: Dim.AUTO for axis, size in enumerate(example.shape) if isinstance(size, SymInt)} or None
    return None
