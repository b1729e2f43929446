"""Tracing of one decomposition rule to a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode

from fx_importer.decompositions.engine.local.operator_properties import (
    has_ordered_effect,
    is_composite,
    is_identity,
    view_form,
)
from fx_importer.errors import FxImporterError, UsageError
from fx_importer.frontend.recurrent_states import lstm_without_onednn
from fx_importer.fx_graph.aliasing import mutated_arguments, updates_running_statistics, view_bases
from fx_importer.fx_graph.emission import SymNumber, has_symbolic_sizes
from fx_importer.fx_graph.operators import aten

Rules = Mapping[Any, Callable[..., Any]]

checks_operands: ContextVar[bool] = ContextVar("checks_operands", default=False)
"""Set while guards on sizes are checks of an operator's operands, and no branches of a rule."""

_METADATA = frozenset((torch.ops.prim.device.default, *FunctionalTensor.metadata_fns))


@contextmanager
def checking_operands() -> Iterator[None]:
    """Let torch decide on sizes in the body, which checks the operands of an operator or computes its metadata."""
    token = checks_operands.set(True)
    try:
        yield
    finally:
        checks_operands.reset(token)


class RetraceRequired(Exception):
    """A node or a program cannot be decomposed locally, for the reason in the message; torch has to trace it again."""


@dataclass(frozen=True)
class SymbolicNumber:
    """A symbolic number among the arguments of a replacement, for which no node was made yet."""

    number: SymNumber


@dataclass(frozen=True)
class Replacement:
    """The graph that replaces a node."""

    inputs: tuple[fx.Node, ...]
    """Placeholders of the tensors among the node's arguments, each once, in order."""
    constants: Mapping[fx.Node, Tensor]
    """Placeholders of tensors that the rule creates from Python numbers."""
    steps: tuple[fx.Node, ...]
    """Calls, in order. Symbolic sizes in their arguments are `SymbolicNumber`."""
    result: Any
    """Nodes, numbers, sizes or None; in a tuple or list if the operator returns one."""
    is_whole: bool = False
    """Whether the operator is kept: the graph is a single call of it with the same arguments."""
    values: Mapping[fx.Node, Any] = field(default_factory=dict)
    """Example values of the steps in the fake mode of the program. Those that are not here are in the metadata."""

    def value_of(self, node: fx.Node) -> Any:
        """Return the example value of a placeholder or a step."""
        return self.values[node] if node in self.values else node.meta["val"]


class RuleTracer(TorchDispatchMode):
    """Dispatch mode that decomposes calls by ``rules``, and records the remaining ones in a graph."""

    supports_higher_order_operators = True

    def __init__(self, rules: Rules):
        super().__init__()
        self.graph = fx.Graph()
        self.constants: dict[fx.Node, Tensor] = {}
        self._rules = rules
        self._known: dict[int, tuple[Tensor, fx.Node]] = {}  # keeps the tensor alive, so that its id stays unique

    def input(self, value: Tensor) -> fx.Node:
        """Return a new placeholder for a tensor that is not computed by the rule."""
        node = self.graph.placeholder("input")
        node.meta["val"] = value
        self._known[id(value)] = value, node
        return node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Decompose a call, or record it."""
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            raise RetraceRequired(f"its rule calls {func}, an operator of higher order")
        if func in _METADATA:
            return func(*args, **kwargs)
        if updates_running_statistics(func, args):
            raise RetraceRequired("it updates running statistics")
        if has_ordered_effect(func):
            raise RetraceRequired(f"its rule calls {func}, whose effect is kept in order")
        if is_identity(func) or _is_no_op_as_strided(func, args):
            return args[0] if isinstance(args[0], FakeTensor) else self._constant(func, args[0])
        if (view := view_form(func)) is not None:
            return self._become(view, func, args, kwargs)
        if not func._schema.is_mutable:
            result: Any = NotImplemented
            with self:
                if func in self._rules:
                    result = self._rules[func](*args, **kwargs)
                if result is NotImplemented and is_composite(func):
                    result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return self._record(func, args, kwargs)

    def nodes_of(self, value: Any) -> Any:
        """Return ``value`` with tensors replaced by nodes, and symbolic sizes by `SymbolicNumber`."""
        if isinstance(value, SymNumber):
            return SymbolicNumber(value)
        if isinstance(value, Tensor):
            known = self._known.get(id(value))
            if known is None:
                raise RetraceRequired("its rule reads a tensor that it did not compute")
            return known[1]
        if isinstance(value, tuple | list):
            items = [self.nodes_of(item) for item in value]
            return tuple(items) if isinstance(value, tuple) else items
        if isinstance(value, dict):
            return {key: self.nodes_of(item) for key, item in value.items()}
        return value

    def _record(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        operands = self.nodes_of(args)
        node = self.graph.create_node(
            "call_function", func, operands, self.nodes_of(kwargs), func.overloadpacket.__name__
        )
        with checking_operands():
            result = func(*args, **kwargs)
        self._remember(node, result)
        return result

    def _become(self, view: OpOverload, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
        """Apply the in-place view ``func`` to the first argument, recorded as ``view``; its old node keeps its type."""
        value: Tensor = args[0]
        node = self.nodes_of(value)
        if node.op == "placeholder":
            raise RetraceRequired("its rule changes the type of an argument in place")
        with self:
            changed = self.nodes_of(view(*args, **kwargs))
        node.meta["val"] = value.detach()
        func(*args, **kwargs)
        self._known[id(value)] = value, changed
        return value

    def _remember(self, node: fx.Node, value: Any) -> None:
        node.meta["val"] = value
        if isinstance(value, Tensor):
            self._known[id(value)] = value, node
        elif isinstance(value, tuple | list):
            for index, item in enumerate(value):
                if isinstance(item, Tensor | SymNumber):
                    self._remember(self.graph.call_function(operator.getitem, (node, index)), item)

    def _constant(self, func: OpOverload, value: Tensor) -> Tensor:
        fake = func(value)
        self.constants[self.input(fake)] = value
        return fake


def trace_rule(
    target: OpOverload, args: Any, kwargs: Any, inputs: list[Tensor], rules: Rules, mode: FakeTensorMode
) -> Replacement:
    """Return the decomposition of ``target`` for these arguments; ``inputs`` are their tensors.

    Raises:
        RetraceRequired: if the rule cannot be traced alone, or its graph depends on more than the arguments.
    """
    recorder = RuleTracer(rules)
    placeholders = tuple(map(recorder.input, inputs))
    fresh = [] if mode.shape_env is None else mode.shape_env.pending_fresh_unbacked_symbols
    before = len(fresh)
    symbolic = enable_python_dispatcher() if has_symbolic_sizes((args, kwargs)) else nullcontext()
    try:
        below_autograd = torch._C._AutoDispatchBelowAutograd()  # where composites are not decomposed yet
        with torch.no_grad(), lstm_without_onednn(), mode, symbolic, recorder, below_autograd:
            computed = target(*args, **kwargs)
        result = recorder.nodes_of(computed)
    except (RetraceRequired, FxImporterError, Warning):
        raise
    except Exception as error:
        raise RetraceRequired(f"its rule raises {type(error).__name__}: {error}") from error
    finally:
        new = fresh[before:]
        del fresh[before:]
    if new:
        raise RetraceRequired("its rule makes sizes that depend on values")
    steps = live_calls(recorder.graph, result)
    _check_writes(target, steps, placeholders)
    whole = len(steps) == 1 and steps[0] is result and steps[0].target is target
    same = whole and repr((steps[0].args, steps[0].kwargs)) == repr(
        (recorder.nodes_of(args), recorder.nodes_of(kwargs))
    )
    return Replacement(placeholders, recorder.constants, steps, result, is_whole=same)


def _check_writes(target: OpOverload, steps: Sequence[fx.Node], inputs: Collection[fx.Node]) -> None:
    """Raise `UsageError` if a rule writes to its arguments, whose other readers would see that."""
    for step in steps:
        if any(base in inputs for argument in mutated_arguments(step) for base in view_bases(argument)):
            raise UsageError(
                f"the decomposition of {target} writes to its arguments by {step.target}: a rule computes new values; "
                "clone() the argument first"
            )


def _is_no_op_as_strided(func: OpOverload, args: Any) -> bool:
    """Return whether ``func`` is an ``as_strided_`` that changes strides of dimensions of size one only."""
    if func is not aten.as_strided_.default:
        return False
    value: Tensor = args[0]
    offset = args[3] if len(args) > 3 else None
    if offset is not None and size_expression(offset) != size_expression(value.storage_offset()):
        return False
    old, new = zip(value.shape, value.stride(), strict=True), zip(args[1], args[2], strict=True)
    axes = [tuple(map(size_expression, (*x, *y))) for x, y in zip(old, new, strict=False)]
    return len(args[1]) == value.dim() and all(x[0] == x[2] and (x[0] == 1 or x[1] == x[3]) for x in axes)


def size_expression(size: int | SymInt) -> Any:
    """Return a size as an int or a SymPy expression, which can be compared without adding a guard."""
    return size if isinstance(size, int) else size.node.expr


def live_calls(graph: fx.Graph, result: Any) -> tuple[fx.Node, ...]:
    """Return the calls of ``graph`` that ``result`` depends on, and those with side effects, in order."""
    needed: set[fx.Node] = set()
    map_arg(result, needed.add)
    steps = []
    for node in reversed(graph.nodes):
        if node.op != "placeholder" and (node in needed or node.is_impure(impure_random=False) or _writes(node)):
            needed.update(node.all_input_nodes)
            steps.append(node)
    return tuple(reversed(steps))


def _writes(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable
