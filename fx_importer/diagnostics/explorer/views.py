"""Programs and modules as lines of text, each with the sites that it came from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.diagnostics.explorer.sites import Sites
from fx_importer.diagnostics.reports.report_contents import READABLE_LIMIT
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations

_FILE = "fx-importer-explorer"
_MARK = re.compile(rf' loc\("{_FILE}":(\d+):0\)')


@dataclass(frozen=True)
class View:
    """The text of a program or a module after a stage."""

    kind: str
    """``"fx"`` or ``"mlir"``."""
    lines: tuple[str, ...]
    sites: tuple[int, ...]
    """For each line, the number of its set of sites."""


def module_view(module: ir.Operation, sites: Sites) -> View:
    """Return ``module``, which is not changed, without its weights."""
    copy = module.clone().operation
    _mark(copy, sites)
    text = copy.get_asm(use_local_scope=True, large_elements_limit=16, enable_debug_info=True)
    none = sites.of_location(ir.Location.unknown(module.context))
    lines: list[str] = []
    found: list[int] = []
    opened: list[int] = []
    size = 0
    for line in text.splitlines():
        marks = _MARK.findall(line)
        line = _MARK.sub("", line)
        size += len(line)
        if size > READABLE_LIMIT:
            lines.append("// truncated")
            found.append(none)
            break
        number = int(marks[-1]) if marks else none
        if line.lstrip().startswith("}") and opened:
            first = opened.pop()  # the location of an operation with regions is behind its last one
            found[first] = number if marks else found[first]
            if line.endswith("{"):
                opened.append(first)
        elif line.endswith("{"):
            opened.append(len(lines))
            number = none
        lines.append(line)
        found.append(number)
    return View("mlir", tuple(lines), tuple(found))


def _mark(module: ir.Operation, sites: Sites) -> None:
    """Replace all locations in ``module`` by the numbers of their sets of sites, as lines of a file."""
    context = module.context
    unknown = sites.of_location(ir.Location.unknown(context))
    made: dict[int, ir.Location] = {}

    def mark(number: int) -> ir.Location:
        if number not in made:
            made[number] = ir.Location.file(_FILE, number, 0, context=context)
        return made[number]

    for op in operations(module):
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    argument.set_location(mark(unknown))
        op.location = mark(sites.of_location(op.location))


def program_view(programs: Mapping[str, ExportedProgram], sites: Sites) -> View:
    """Return the graphs of ``programs``, a line for each node."""
    rows: list[tuple[str, int]] = []
    for name, program in programs.items():
        _append_graph(name, program.graph_module, sites, rows)
    return View("fx", tuple(text for text, _ in rows), tuple(number for _, number in rows))


def _append_graph(name: str, graph: fx.GraphModule, sites: Sites, rows: list[tuple[str, int]]) -> None:
    nothing = sites.sets.setdefault((), len(sites.sets))
    rows.append((f"graph {name} {{", nothing))
    for node in graph.graph.nodes:
        rows.extend((line, sites.of_node(node)) for line in _node_text(node).splitlines())
    rows.append(("}", nothing))
    for child, module in graph.named_children():
        if isinstance(module, fx.GraphModule):
            _append_graph(f"{name}.{child}", module, sites, rows)


def _node_text(node: fx.Node) -> str:
    arguments = [_value(each) for each in node.args] + [f"{key}={_value(each)}" for key, each in node.kwargs.items()]
    called = str(node.target) if node.op == "call_function" else f"{node.op} {node.target}"
    if callable(node.target) and not isinstance(node.target, torch._ops.OpOverload):
        called = getattr(node.target, "__name__", called)
    type_ = _type(node.meta.get("val"))
    return f"  %{node.name} = {called}({', '.join(arguments)})" + (f" : {type_}" if type_ else "")


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
        for program in programs.values()
        for module in program.graph_module.modules()
        if isinstance(module, fx.GraphModule)
        for node in module.graph.nodes
    ]
    return dict(Counter(str(node.target) for node in nodes if node.op == "call_function").most_common())
