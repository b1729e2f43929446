"""Exported programs as views: a line for each node, and the nodes as a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.diagnostics.explorer.sites import Sites
from fx_importer.diagnostics.explorer.view import ExplorerView, Node


def program_view(
    programs: Mapping[str, ExportedProgram], sites: Sites, starts: dict[fx.Node, int] | None = None
) -> ExplorerView:
    """Return the graphs of ``programs``, a line for each node. The row of each is added to ``starts``."""
    starts = {} if starts is None else starts
    rows: list[tuple[str, int]] = []
    nodes: list[Node] = []
    for name, program in programs.items():
        arguments = set(program.graph_signature.user_inputs)
        for graph_name, graph in _graphs(name, program.graph_module):
            own = arguments if graph is program.graph_module else set()
            _append_graph(graph_name, graph, sites, rows, nodes, own, starts)
    return ExplorerView("fx", tuple(text for text, _ in rows), tuple(number for _, number in rows), tuple(nodes))


def program_lines(programs: Mapping[str, ExportedProgram]) -> tuple[str, ...]:
    """Return the lines of `program_view` without its links, which take longer than the text."""
    return tuple(
        line
        for name, program in programs.items()
        for graph_name, graph in _graphs(name, program.graph_module)
        for text in (f"graph {graph_name} {{", *map(_node_text, graph.graph.nodes), "}")
        for line in text.splitlines()
    )


def _graphs(name: str, graph: fx.GraphModule) -> Iterator[tuple[str, fx.GraphModule]]:
    yield name, graph
    for child, module in graph.named_children():
        if isinstance(module, fx.GraphModule):
            yield from _graphs(f"{name}.{child}", module)


def _append_graph(
    name: str,
    graph: fx.GraphModule,
    sites: Sites,
    rows: list[tuple[str, int]],
    nodes: list[Node],
    arguments: Container[object],
    starts: dict[fx.Node, int],
) -> None:
    numbers: dict[fx.Node, int] = {}
    rows.append((f"graph {name} {{", 0))
    for node in graph.graph.nodes:
        starts[node] = len(rows)
        if node.op == "call_function" or node.op == "output" or node.name in arguments:
            inputs = tuple(numbers[source] for source in node.all_input_nodes if source in numbers)
            called = {"call_function": target_name(node), "placeholder": f"input {node.target}"}.get(node.op, node.op)
            numbers[node] = len(nodes)
            nodes.append(Node(len(rows), called, inputs))
        place = sites.of_node(node)
        if not place and node.op in ("placeholder", "get_attr"):  # weights: where they are used
            place = sites.of_users(sites.of_node(user) for user in node.users)
        rows.extend((line, place) for line in _node_text(node).splitlines())
    rows.append(("}", 0))


def _node_text(node: fx.Node) -> str:
    arguments = [_value(argument) for argument in node.args] + [
        f"{key}={_value(argument)}" for key, argument in node.kwargs.items()
    ]
    called = target_name(node) if node.op == "call_function" else f"{node.op} {node.target}"
    type_ = _type(node.meta.get("val"))
    return f"  %{node.name} = {called}({', '.join(arguments)})" + (f" : {type_}" if type_ else "")


def target_name(node: fx.Node) -> str:
    """Return the name of the callee of a node: ``aten.add.Tensor``, or ``ge`` for a function of Python."""
    if callable(node.target) and not isinstance(node.target, torch._ops.OpOverload):
        return getattr(node.target, "__name__", None) or str(node.target)
    return str(node.target)


def _value(argument: object) -> str:
    if isinstance(argument, fx.Node):
        return f"%{argument.name}"
    if isinstance(argument, (list, tuple)):
        return f"[{', '.join(map(_value, argument))}]"
    return " ".join(str(argument).split())


def _type(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_type, value))})"
    return "" if value is None else type(value).__name__


def node_counts(programs: Mapping[str, ExportedProgram]) -> dict[str, int]:
    """Return the counts of the calls in ``programs`` by operator, the most frequent first."""
    nodes = [
        node
        for name, program in programs.items()
        for _, graph in _graphs(name, program.graph_module)
        for node in graph.graph.nodes
    ]
    return dict(Counter(target_name(node) for node in nodes if node.op == "call_function").most_common())
