"""Calls of equal modules: what their trace depends on, and copies of the nodes of a traced one."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from fx_importer.frontend.repeated_modules.live_trace import (
    CallSite,
    LiveTrace,
    check_has_no_attributes,
    check_result,
    moved,
)
from fx_importer.frontend.repeated_modules.module_signature import (
    CONSTANTS,
    Attribute,
    NotComparable,
    Repeated,
    tensor_type,
)
from fx_importer.frontend.repeated_modules.python_state import PythonState
from fx_importer.frontend.repeated_modules.watched_number import IndexedState, WatchedNumber
from fx_importer.fx_graph.aliasing import view_bases, writes_of
from fx_importer.fx_graph.operators import aten

_NUMBERS = (SymInt, SymFloat, SymBool)
_SETTINGS = (torch._C._set_grad_enabled,)


class ModuleCall:
    """The arguments of a call, and a key that is equal for calls with the same trace.

    Raises:
        NotComparable: for arguments that code of the module may read in another way than as tensors or constants.
    """

    def __init__(
        self, trace: LiveTrace, module: Repeated, arguments: Any, site: CallSite, numbers: Mapping[Attribute, int]
    ):
        self.trace = trace
        self.module = module
        self.site = site
        self.numbers = numbers
        self.tensors: list[Tensor] = []
        self.nodes: list[fx.Node] = []
        self.state: IndexedState | None = None
        self._places: dict[int, int] = {}
        self.weights = self._named(module.weights())
        """The parameters and buffers by name, as torch.export replaced them, and their nodes."""
        self.key = self._key(arguments), _settings()
        state = self.state
        indices = () if state is None else {*numbers.values()}
        self.entries = {at: self._named(state.tensors(at).items()) for at in indices if state is not None}
        """What the cache holds for each number, by name, and their nodes."""

    def gradients(self) -> list[bool]:
        """Return which arguments require a gradient, which mostly does not change the trace."""
        return [tensor.requires_grad for tensor in self.tensors]

    def _named(self, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, tuple[Tensor, fx.Node]]:
        return {name: (tensor, node) for name, tensor in tensors if (node := self.trace.node(tensor)) is not None}

    def _key(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._tensor_key(value)
        if isinstance(value, IndexedState):
            if self.state is not None and self.state is not value:
                raise NotComparable("it takes several caches")
            self.state = value
            return IndexedState, id(value)
        if type(value) in (tuple, list):
            return type(value), *map(self._key, value)
        if type(value) is dict:
            return dict, *((name, self._key(item)) for name, item in value.items())
        if isinstance(value, _NUMBERS):
            if free_unbacked_symbols(value):
                raise NotComparable("an argument is a number that is known at run time")
            return type(value), value.node.expr
        if type(value) in CONSTANTS:
            return type(value), repr(value)
        raise NotComparable(f"an argument is of the class {type(value).__name__}")

    def _tensor_key(self, tensor: Tensor) -> Any:
        if (path := self._places.get(id(tensor))) is not None:
            return Tensor, path
        node = self.trace.node(tensor)
        if node is None or getattr(tensor, "constant", None) is not None:
            raise NotComparable("an argument is a constant tensor")
        check_has_no_attributes(tensor)
        self._places[id(tensor)] = len(self.tensors)
        self.tensors.append(tensor)
        self.nodes.append(node)
        return tensor_type(tensor), tensor.storage_offset()


def _settings() -> Any:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        *(mode for mode in torch.overrides._get_current_function_mode_stack()),
    )


class TracedCall:
    """A call that was traced, with the data that copies of its nodes need.

    Args:
        call: the call.
        state: what its code may read, as it was before.
        body: the nodes that it added.
        result: its result.
        numbers: the numbers that its code may have read.
        depth: the number of modules that it is in, itself included.

    Raises:
        NotComparable: if copies of the nodes could differ from what tracing makes.
    """

    def __init__(
        self,
        call: ModuleCall,
        state: PythonState,
        body: list[fx.Node],
        result: Any,
        numbers: Mapping[Attribute, WatchedNumber],
        depth: int,
    ):
        self.call = call
        self.state = state
        self.body = body
        self.result = result
        self.numbers = numbers
        self.depth = depth
        self.texts = call.site.texts()
        index = self.index()
        self.entry = {} if index is None else call.entries[index]
        self.outer = {*call.nodes, *(node for _, node in (*call.weights.values(), *self.entry.values()))}
        leaves = pytree.tree_leaves(result)
        self.results = {id(leaf): call.trace.node(leaf) for leaf in leaves if isinstance(leaf, Tensor)}
        self._is_differentiable = not state.reads_gradients and all(
            leaf.requires_grad for leaf in leaves if isinstance(leaf, Tensor)
        )
        """Whether neither the results nor what the code does depends on which arguments require a gradient."""
        self._check(leaves)
        inner = set(body)
        tensors = (*call.tensors, *(tensor for tensor, _ in self.entry.values()))
        written = ((tensor, call.trace.node(tensor)) for tensor in tensors)
        self.written = [(tensor, node) for tensor, node in written if node in inner]
        """Tensors of arguments and of the cache that an operator of the body has written to, with the last one."""

    def index(self) -> int | None:
        """Return the number of the cache's entry that the call reads; None if it reads none.

        Raises:
            NotComparable: if it reads several.
        """
        numbers = {number.value for number in self.numbers.values() if number.is_index}
        if len(numbers) > 1:
            raise NotComparable("it reads several entries of a cache")
        return numbers.pop() if numbers else None

    def stands_for(self, other: ModuleCall) -> bool:
        """Return whether ``other`` computes the same, with its own weights and its own entry of the cache."""
        if self.call.key != other.key or self.call.trace.tracer is not other.trace.tracer:
            return False
        if self.call.gradients() != other.gradients() and not self._is_differentiable:
            return False
        if (index := self.index()) is None:
            return True
        assert self.call.state is not None
        theirs = {other.numbers[at] for at, number in self.numbers.items() if number.is_index}
        return len(theirs) == 1 and self.call.state.are_equal(index, self._index_of(other))

    def _check(self, leaves: Sequence[Any]) -> None:
        for (_, name), number in self.numbers.items():
            if number.is_read:
                raise NotComparable(f"its code reads {name}, which differs")
        body = set(self.body)
        if not {*self.call.nodes}.isdisjoint(node for _, node in self.call.weights.values()):
            raise NotComparable("a weight of it is an argument too")
        for node in self.body:
            self._check_node(node, body)
            for source in node.all_input_nodes:
                known = source in body or source in self.outer or _is_number(source)
                if not known and self.call.state is None:
                    raise NotComparable("its code reads a tensor that is neither an argument nor a weight")
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                node = self.results[id(leaf)]
                if node in body:
                    check_result(leaf)
                elif node not in self.outer:
                    raise NotComparable("a result is a constant tensor")
            elif type(leaf) not in CONSTANTS and not isinstance(leaf, _NUMBERS):
                raise NotComparable(f"a result is of the class {type(leaf).__name__}")

    def _check_node(self, node: fx.Node, body: set[fx.Node]) -> None:
        value = node.meta.get("val")
        if value is not None and free_unbacked_symbols(value):
            raise NotComparable("it has sizes that are known at run time")
        target = node.target
        if not isinstance(target, OpOverload):
            if _is_number(node) or node.target in _SETTINGS or node.target is operator.getitem:
                return
            raise NotComparable("it has constant tensors, control flow or autocast")
        if is_random(node):
            raise NotComparable(f"it draws random numbers ({node.target})")
        for written, _ in writes_of(node):
            for base in view_bases(written):
                entry = (node for _, node in self.entry.values())
                if base not in body and base not in self.call.nodes and base not in entry:
                    raise NotComparable("it changes a weight, a buffer or a tensor of another module")
                if base in self.outer and torch.Tag.inplace_view in target.tags:
                    raise NotComparable("it changes the shape of an argument")

    def copied(self, other: ModuleCall) -> Any:
        """Add the nodes of ``other``, and return its result."""
        trace, made = other.trace, dict(zip(self.call.nodes, other.nodes, strict=True))
        made |= {node: other.weights[name][1] for name, (_, node) in self.call.weights.items()}
        entry = {} if not self.entry else other.entries[self._index_of(other)]
        made |= {node: entry[name][1] for name, (_, node) in self.entry.items()}
        stacks = _Stacks(self, other)
        texts = None if other.site.lines == self.call.site.lines else other.site.texts()
        for node in self.body:
            if _is_number(node):
                continue
            made[node] = copy = trace.graph.node_copy(node, lambda source: made.get(source, source))
            copy.meta["nn_module_stack"] = stacks.of(node)
            if texts is not None and copy.stack_trace:
                copy.stack_trace = moved(copy.stack_trace, self.texts, texts)
        theirs = dict(zip(map(id, self.call.tensors), other.tensors, strict=True))
        theirs |= {id(tensor): entry[name][0] for name, (tensor, _) in self.entry.items()}
        for tensor, node in self.written:
            trace.set_node(theirs[id(tensor)], made[node])
        theirs |= {id(tensor): other.weights[name][0] for name, (tensor, _) in self.call.weights.items()}

        def result(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            if id(leaf) not in theirs:
                node = self.results[id(leaf)]
                assert node is not None
                theirs[id(leaf)] = trace.result(made[node], leaf)
            return theirs[id(leaf)]

        return pytree.tree_map(result, self.result)

    def _index_of(self, other: ModuleCall) -> int:
        """Return the number of the cache's entry that ``other`` would read."""
        return next(other.numbers[at] for at, number in self.numbers.items() if number.is_index)


def _is_number(node: fx.Node) -> bool:
    """Return whether the value of ``node`` is a size, which torch computes once for all who use it."""
    return isinstance(node.meta.get("val"), _NUMBERS)


def is_random(node: fx.Node) -> bool:
    """Return whether a call draws random numbers."""
    target = node.target
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    arguments = (
        dict(zip((argument.name for argument in target._schema.arguments), node.args, strict=False)) | node.kwargs
    )
    if target is aten.scaled_dot_product_attention.default:
        return bool(arguments.get("dropout_p", 0.0))
    return all(arguments.get(name, True) is not False for name in ("train", "training"))


class _Stacks:
    """The module stacks of copied nodes."""

    def __init__(self, traced: TracedCall, other: ModuleCall):
        trace = other.trace
        self._trace, self._depth, self._outer = trace, traced.depth, trace.stack()
        self._old, self._new = (trace.path(call.module.module) for call in (traced.call, other))
        self._keys: dict[str, str] = {}

    def of(self, node: fx.Node) -> dict[str, tuple[str, str]]:
        """Return the stack of the copy of ``node``."""
        stack = dict(self._outer)
        for key, (path, kind) in [*node.meta["nn_module_stack"].items()][self._depth :]:
            if path.startswith(f"{self._old}."):
                path = self._new + path[len(self._old) :]
            if key not in self._keys:
                self._keys[key] = self._trace.key_of_call(path)
            stack[self._keys[key]] = path, kind
        return stack
