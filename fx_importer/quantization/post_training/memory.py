"""Memory that a program overwrites, as inputs and results of a functional module, which quantization reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.fx.graph import CodeGen
from torch.utils._pytree import tree_leaves, tree_map_only

from fx_importer.fx_graph.aliasing import alias_sets
from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.functional_form import functional
from fx_importer.quantization.post_training.calibration import Call


@dataclass(frozen=True)
class Memory:
    """Tensors that a module overwrites: its last placeholders are the state, its last results the new values."""

    state: Mapping[str, Tensor]
    """Copies of the buffers, by name."""
    written: Sequence[str | int]
    """For each new value, the buffer, or the leaf of the inputs."""
    codegen: CodeGen
    """Of the module with memory, which takes the arguments of the model."""

    def leaves(self, call: Call) -> list[Any]:
        """Return the arguments of the module for the first call."""
        args, kwargs = call
        return [*tree_leaves((tuple(args), dict(kwargs))), *(tensor.clone() for tensor in self.state.values())]

    def calls(self, module: fx.GraphModule, calls: Iterable[Call]) -> Iterator[Callable[[], object]]:
        """Yield functions that call ``module``, without memory, with ``calls``, in order; written inputs are copied."""
        if not self.written:
            yield from (partial(module, *args, **kwargs) for args, kwargs in calls)
            return
        state = {name: tensor.clone() for name, tensor in self.state.items()}
        copies: dict[int, Tensor] = {}  # the same tensor in several calls stays one

        def copied(tensor: Tensor) -> Tensor:
            if id(tensor) not in copies:
                copies[id(tensor)] = tensor.clone()
            return copies[id(tensor)]

        def run(leaves: Sequence[Any]) -> None:
            results = module(*leaves, *state.values())
            places = [state[source] if isinstance(source, str) else leaves[source] for source in self.written]
            for tensor, value in zip(places, results[len(results) - len(places) :], strict=True):
                tensor.copy_(value)

        for call in list(calls):
            yield partial(run, tree_leaves(tree_map_only(Tensor, copied, call)))


def without_memory(program: ExportedProgram) -> tuple[fx.GraphModule, Memory]:
    """Return the module of ``program`` in functional form, and what it overwrites.

    Buffers that it writes are inputs, and their new values results, so that no value that changes is a constant.
    Without any, the module takes the arguments of the model.
    """
    module: Any = functional(program).module(check_guards=False)
    graph: fx.Graph = module.graph
    inputs = graph.find_nodes(op="placeholder")
    copies = list(graph.find_nodes(op="call_function", target=aten.copy_.default))
    targets = [node.args[0] for node in copies]
    names = dict.fromkeys(str(node.target) for node in targets if node.op == "get_attr")
    state: dict[str, Tensor] = {name: attrgetter(name)(module).detach().clone() for name in names}
    placeholders: dict[str, fx.Node] = {}
    for name in state:
        nodes = [node for node in graph.find_nodes(op="get_attr") if node.target == name]
        after = [*inputs, *placeholders.values()]
        with graph.inserting_after(after[-1]) if after else graph.inserting_before(next(iter(graph.nodes))):
            placeholders[name] = graph.placeholder(nodes[0].name)
        placeholders[name].meta = dict(nodes[0].meta)
        for node in nodes:
            node.replace_all_uses_with(placeholders[name])
            graph.erase_node(node)
    written: list[str | int] = []
    values: list[Any] = []
    by_node = {node: name for name, node in placeholders.items()}
    for node in copies:
        target: Any = node.args[0]
        value: Any = node.args[1]
        written.append(by_node[target] if target in by_node else inputs.index(target))
        values.append(value)
        node.replace_all_uses_with(value)
        graph.erase_node(node)
    memory = Memory(state, written, graph._codegen)
    if written:
        output: Any = graph.output_node()
        output.args = ((*output.args[0], *values),)
        graph.set_codegen(CodeGen())
        module.recompile()
    return module, memory


def with_memory(module: fx.GraphModule, memory: Memory) -> fx.GraphModule:
    """Return ``module``, quantized from what `without_memory` returned, which overwrites buffers and inputs again."""
    result = fx.GraphModule(module, module.graph, type(module).__name__)
    if not memory.written:
        return result
    graph = result.graph
    placeholders = graph.find_nodes(op="placeholder")
    inputs, states = (
        placeholders[: len(placeholders) - len(memory.state)],
        placeholders[len(placeholders) - len(memory.state) :],
    )
    nodes: dict[str, fx.Node] = {}
    for node, (name, tensor) in zip(states, memory.state.items(), strict=True):
        _register(result, name, tensor.clone())
        with graph.inserting_before(node):
            nodes[name] = graph.get_attr(name)
        nodes[name].meta = dict(node.meta)
        node.replace_all_uses_with(nodes[name])
        graph.erase_node(node)
    output = graph.output_node()
    values = _apart(graph, [nodes[source] if isinstance(source, str) else inputs[source] for source in memory.written])
    count = len(values) - len(memory.written)
    with graph.inserting_before(output):
        for source, value in zip(memory.written, values[count:], strict=True):
            target = nodes[source] if isinstance(source, str) else inputs[source]
            graph.call_function(aten.copy_.default, (target, value)).meta["val"] = target.meta.get("val")
    output.args = (tuple(values[:count]),)
    graph.set_codegen(memory.codegen)
    result.recompile()
    return result


def _apart(graph: fx.Graph, places: Sequence[fx.Node]) -> list[Any]:
    """Return the results of ``graph``, with copies of those that share memory with ``places``."""
    output: Any = graph.output_node()
    groups = alias_sets(graph)
    shared = set[fx.Node]().union(*(groups[target] for target in places))
    values: list[Any] = []
    for value in output.args[0]:
        if isinstance(value, fx.Node) and value in shared:
            with graph.inserting_before(output):
                copy = graph.call_function(aten.clone.default, (value,))
            copy.meta = dict(value.meta)
            value = copy
        values.append(value)
    return values


def _register(module: torch.nn.Module, name: str, tensor: Tensor) -> None:
    """Register a buffer at the path ``name``, with the submodules on it that are missing."""
    *path, last = name.split(".")
    for part in path:
        if not isinstance(getattr(module, part, None), torch.nn.Module):
            module.add_module(part, torch.nn.Module())
        module = module.get_submodule(part)
    if hasattr(module, last):
        delattr(module, last)
    module.register_buffer(last, tensor)
