"""Export a decoder and trace identical layers only once: the others copy the traced nodes with their own weights.

A layer is copied if it differs from an earlier layer only in its weights, its part of the cache and the values of its
arguments. Otherwise it is traced. Python side effects of copied layers happen only once, in the traced layer.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram, export
from torch.export.graph_signature import InputSpec

from fx_importer.frontend.torch_patches import tracing
from fx_importer.fx_graph.programs import with_graph
from fx_importer.llm.architectures.layers_cache import LayerNumber, LayersCache

_NUMBER = "layer_idx"
"""The attribute of transformers modules that holds their layer number."""


@tracing()
def export_layers_once(
    decoder: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: tuple[Any, ...],
) -> ExportedProgram:
    """Export a decoder in evaluation mode like `torch.export.export`, but trace identical layers only once."""
    layers = _equal_layers(decoder)
    if layers:
        with _traced_once(layers) as calls:
            program = export(decoder, args, kwargs, dynamic_shapes=dynamic_shapes)
        if (copied := _with_copies(program, calls)) is not None:
            return copied
    return export(decoder, args, kwargs, dynamic_shapes=dynamic_shapes)


@dataclass(frozen=True, eq=False)
class _Layer:
    name: str
    module: torch.nn.Module
    number: int | None


def _equal_layers(decoder: torch.nn.Module) -> list[list[_Layer]]:
    """Return groups of two or more identical layers, from all module lists that are not inside another list."""
    names = (*decoder.named_parameters(remove_duplicate=False), *decoder.named_buffers(remove_duplicate=False))
    shared = {key for key, number in Counter(id(tensor) for _, tensor in names).items() if number > 1}
    found: list[list[_Layer]] = []
    lists: list[str] = []
    for name, modules in decoder.named_modules():
        if not isinstance(modules, torch.nn.ModuleList) or any(name.startswith(f"{each}.") for each in lists):
            continue
        lists.append(name)
        groups: list[list[_Layer]] = []
        for place, module in modules.named_children():
            if type(module) is torch.nn.Module or "forward" in vars(module):  # cache buffers, or a patched forward
                continue
            if any(id(each) in shared for each in (*module.parameters(), *module.buffers())):
                continue
            layer = _Layer(f"{name}.{place}", module, _number(module))
            group = next((each for each in groups if _is_equal(each[0], layer)), None)
            if group is None:
                groups.append([layer])
            else:
                group.append(layer)
        found += [each for each in groups if len(each) > 1]
    return found


def _number(layer: torch.nn.Module) -> int | None:
    """Return the layer number that the modules of ``layer`` agree on; None if there is none, or they disagree."""
    numbers = {vars(each)[_NUMBER] for each in layer.modules() if type(vars(each).get(_NUMBER)) is int}
    return numbers.pop() if len(numbers) == 1 else None


def _is_equal(one: _Layer, other: _Layer) -> bool:
    ours, theirs = dict(one.module.named_modules()), dict(other.module.named_modules())
    numbered = one.number is not None and other.number is not None
    return ours.keys() == theirs.keys() and all(
        _is_equal_module(each, theirs[name], numbered) for name, each in ours.items()
    )


def _is_equal_module(one: torch.nn.Module, other: torch.nn.Module, numbered: bool) -> bool:
    """Return whether modules have the same class and attributes, ignoring weight values and the contents of submodules.

    If they are ``numbered``, their layer numbers may differ too.
    """
    ours, theirs = vars(one), vars(other)
    if type(one) is not type(other) or ours.keys() != theirs.keys():
        return False
    for name, value in ours.items():
        if name in ("_parameters", "_buffers"):
            same = value.keys() == theirs[name].keys() and all(
                _weight_type(each) == _weight_type(theirs[name][key]) for key, each in value.items()
            )
        elif name == "_modules":
            same = list(value) == list(theirs[name])
        elif name == _NUMBER and numbered and type(value) is int and type(theirs[name]) is int:
            same = True
        else:
            same = _is_same(value, theirs[name])
        if not same:
            return False
    return True


def _weight_type(tensor: Tensor | None) -> object:
    return tensor if tensor is None else (type(tensor), tensor.requires_grad, _tensor_type(tensor))


def _tensor_type(tensor: Tensor) -> tuple[Any, ...]:
    sizes = (*tensor.shape, *tensor.stride())
    return (
        *(tensor.dtype, tensor.device, tensor.layout, tensor.dim()),
        *(each if isinstance(each, int) else each.node.expr for each in sizes),
    )


def _is_same(one: Any, other: Any) -> bool:
    """Return whether attributes of two modules are the same object, or equal constants."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, set | frozenset):
        return one == other and all(isinstance(each, _CONSTANTS) for each in one)
    if isinstance(one, functools.partial):
        return _is_same((one.func, one.args, one.keywords), (other.func, other.args, other.keywords))
    return isinstance(one, _CONSTANTS) and repr(one) == repr(other)


_CONSTANTS = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)


@torch.library.custom_op("fx_importer_llm::layer_argument", mutates_args=())
def _layer_argument(tensor: Tensor, number: int) -> Tensor:
    """Mark an argument of the traced call ``number``."""
    return tensor.clone()


@torch.library.custom_op("fx_importer_llm::layer_result", mutates_args=())
def _layer_result(tensor: Tensor, number: int) -> Tensor:
    """Mark the result of the traced call ``number``."""
    return tensor.clone()


@torch.library.custom_op("fx_importer_llm::layer_copy", mutates_args=())
def _layer_copy(like: Tensor, tensors: Sequence[Tensor], number: int) -> Tensor:
    """Stand in for the call ``number`` of a layer that is not traced. Its result has the type of ``like``."""
    return like.clone()


def _empty(like: Tensor, *_: Any) -> Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)


for _operator in (_layer_argument, _layer_result, _layer_copy):
    _operator.register_fake(_empty)


@dataclass(eq=False)
class _Call:
    """A call of a layer: its tensors, and a key that is equal for calls with the same trace."""

    layer: _Layer
    place: int
    tensors: list[Tensor]
    key: tuple[Any, ...]
    cache: LayersCache | None
    like: int | None = None
    """The index of a tensor with the result's type; None if the call cannot be copied."""
    of: _Call | None = None
    """The traced call to copy from; None if this call was traced itself."""
    number: LayerNumber | None = field(default=None, repr=False)

    def stands_for(self, other: _Call) -> bool:
        """Return whether ``other`` computes the same, with its own part of the cache."""
        if self.like is None or self.key != other.key or self.cache is not other.cache:
            return False
        if self.number is None or not self.number.is_of_cache:
            return True
        assert self.cache is not None
        return other.layer.number is not None and self.cache.are_equal(self.number.value, other.layer.number)


def _call(layer: _Layer, place: int, arguments: Any) -> _Call | None:
    """Return the call of ``layer``; None if it has mutable or unknown arguments, several caches, or no tensors."""
    tensors: list[Tensor] = []
    caches: list[LayersCache] = []

    def key(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensors.append(value)
            return (Tensor, type(value), _tensor_type(value))
        if type(value) is tuple:
            return tuple(key(each) for each in value)
        if isinstance(value, LayersCache):
            caches.append(value)
            return LayersCache
        if value is None or isinstance(value, _CONSTANTS):
            return type(value), repr(value)
        raise _Unknown

    args, kwargs = arguments
    try:
        found = key(args), tuple((name, key(each)) for name, each in kwargs.items())
    except _Unknown:
        return None
    if len(caches) > 1 or not tensors:
        return None
    return _Call(layer, place, tensors, found, caches[0] if caches else None)


class _Unknown(Exception):
    pass


@contextmanager
def _traced_once(groups: Sequence[Sequence[_Layer]]) -> Iterator[list[_Call]]:
    """Trace only the first of identical layers in the body. Yield the list of their calls; markers hold its indices."""
    calls: list[_Call] = []

    def replaced(layer: _Layer, traced: list[_Call], forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            place = len(calls)
            call = _call(layer, place, (args, kwargs))
            if call is None:
                return forward(*args, **kwargs)
            calls.append(call)
            call.of = next((each for each in traced if each.stands_for(call)), None)
            if call.of is not None:
                assert call.of.like is not None
                return _layer_copy(call.tensors[call.of.like], call.tensors, place)
            args, kwargs = _with_tensors((args, kwargs), [_layer_argument(each, place) for each in call.tensors])
            with _watched_number(call):
                result = forward(*args, **kwargs)
            traced.append(call)
            if not isinstance(result, Tensor) or (call.number is not None and call.number.is_read):
                return result
            kind = _tensor_type(result)
            call.like = next((at for at, each in enumerate(call.tensors) if _tensor_type(each) == kind), None)
            return _layer_result(result, place)

        return run

    layers = [(layer, traced) for group in groups for traced in [[]] for layer in group]
    for layer, traced in layers:
        layer.module.forward = replaced(layer, traced, layer.module.forward)
    try:
        yield calls
    finally:
        for layer, _ in layers:
            del layer.module.forward


def _with_tensors(value: Any, tensors: list[Tensor]) -> Any:
    """Return ``value`` with its tensors replaced by ``tensors``, which are popped in the order of `_call`."""
    if isinstance(value, Tensor):
        return tensors.pop(0)
    if type(value) is tuple:
        return tuple(_with_tensors(each, tensors) for each in value)
    if type(value) is dict:
        return {name: _with_tensors(each, tensors) for name, each in value.items()}
    return value


@contextmanager
def _watched_number(call: _Call) -> Iterator[None]:
    """Record in the body whether the layer reads its number, other than to index the cache."""
    if call.layer.number is None:
        yield
        return
    call.number = LayerNumber(call.layer.number)
    modules = [each for each in call.layer.module.modules() if type(vars(each).get(_NUMBER)) is int]
    for each in modules:
        vars(each)[_NUMBER] = call.number
    try:
        yield
    finally:
        for each in modules:
            vars(each)[_NUMBER] = call.layer.number


def _with_copies(program: ExportedProgram, calls: Sequence[_Call]) -> ExportedProgram | None:
    """Replace the markers in ``program`` by copies of the traced nodes; return None if a layer cannot be copied."""
    graph = program.graph
    own = torch.ops.fx_importer_llm
    arguments: dict[int, list[fx.Node]] = {}
    for node in graph.find_nodes(op="call_function", target=own.layer_argument.default):
        arguments.setdefault(node.args[1], []).append(node)
    results = {each.args[1]: each for each in graph.find_nodes(op="call_function", target=own.layer_result.default)}
    copies = {each.args[2]: each for each in graph.find_nodes(op="call_function", target=own.layer_copy.default)}
    wanted = {place for place, call in enumerate(calls) if call.of is not None}
    if copies.keys() != wanted:
        return None
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    by_target = {spec.target: spec.arg.name for spec in specs.values() if spec.target is not None}
    inputs = {node.name: node for node in graph.find_nodes(op="placeholder")}
    bodies: dict[_Call, list[fx.Node]] = {}
    for place, copy in copies.items():
        call, first = calls[place], calls[place].of
        assert first is not None
        at = first.place
        if at not in results or len(arguments.get(at, ())) != len(first.tensors):
            return None
        if first not in bodies:
            bodies[first] = _between(arguments[at][-1], results[at])
        body = bodies[first]
        if any("unbacked_bindings" in node.meta for node in body):  # each layer would need its own sizes
            return None
        made: dict[fx.Node, fx.Node] = dict(zip(arguments[at], copy.args[1], strict=True))
        for node in {each: None for user in body for each in user.all_input_nodes}:
            if node.op == "placeholder":
                target = _target(specs[node.name], first, call)
                if target is None:
                    continue
                if target not in by_target:
                    return None
                made[node] = inputs[by_target[target]]
        with graph.inserting_before(copy):
            for node in body:
                if isinstance(node.meta.get("val"), torch.SymInt | torch.SymBool | torch.SymFloat):  # shared
                    continue
                made[node] = graph.node_copy(node, lambda each, made=made: made.get(each, each))
                made[node].meta["nn_module_stack"] = _stack(node, first.layer.name, call.layer.name)
        result: Any = results[at].args[0]
        copy.replace_all_uses_with(made.get(result, result))
        graph.erase_node(copy)
    for node in (*(each for several in arguments.values() for each in several), *results.values()):
        tensor: Any = node.args[0]
        node.replace_all_uses_with(tensor)
        graph.erase_node(node)
    return with_graph(program, graph, program.graph_signature)


def _between(start: fx.Node, end: fx.Node) -> list[fx.Node]:
    nodes: list[fx.Node] = []
    node = start.next
    while node is not end:
        nodes.append(node)
        node = node.next
    return nodes


def _target(spec: InputSpec, first: _Call, call: _Call) -> str | None:
    """Return the name of the weight or cache buffer that ``call`` reads instead; None if ``first`` reads the same."""
    name = spec.target
    if name is None:
        return None
    names = [(f"{first.layer.name}.", f"{call.layer.name}.")]
    if first.number is not None and first.number.is_of_cache:
        names.append((f"cache.{first.layer.number}.", f"cache.{call.layer.number}."))
    return next((new + name[len(old) :] for old, new in names if name.startswith(old)), None)


def _stack(node: fx.Node, old: str, new: str) -> dict[str, Any]:
    """Return the module stack of ``node``, with the layer ``old`` renamed to ``new``."""

    def renamed(name: str) -> str:
        return new + name[len(old) :] if name == old or name.startswith(f"{old}.") else name

    stack = node.meta.get("nn_module_stack") or {}
    return {
        f"{key}@{new}" if renamed(path) != path else key: (renamed(path), kind) for key, (path, kind) in stack.items()
    }
