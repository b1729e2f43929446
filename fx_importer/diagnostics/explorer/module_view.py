"""Modules as views: their text, and the operations of their functions as a graph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fx_importer.diagnostics.explorer.sites import Sites
from fx_importer.diagnostics.explorer.view import ExplorerView, Node
from fx_importer.diagnostics.reports.report_contents import READABLE_LIMIT
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations

NAME = "fx_importer.name"
"""The attribute of arguments and results of functions that has their name."""

_FILE = "fx-importer-explorer"
_MARK = re.compile(rf' loc\("{_FILE}":(\d+):0\)')
_CONSTANT = re.compile(r"constant|literal|tosa\.const|tensor\.(empty|splat)|\.iota")


def module_view(module: ir.Operation, sites: Sites) -> ExplorerView:
    """Return ``module``, which is not changed, without its weights."""
    copy = module.clone().operation
    ops = list(operations(copy))
    places = [sites.of_location(op.location) for op in ops]
    _mark(ops, copy.context)
    _place_with_users(ops, places, sites)
    text = copy.get_asm(use_local_scope=True, large_elements_limit=16, enable_debug_info=True)
    lines, marked, starts = _unmarked(text)
    of_lines = tuple(0 if op is None else places[op] for op in marked)
    return ExplorerView("mlir", tuple(lines), of_lines, tuple(_nodes(ops, starts)))


def _mark(ops: list[ir.Operation], context: ir.Context) -> None:
    """Replace all locations by the numbers of their operations, as lines of a file."""
    for number, op in enumerate(ops):
        op.location = mark = ir.Location.file(_FILE, number, 0, context=context)
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    argument.set_location(mark)


def _number(op: ir.Operation | ir.OpView) -> int:
    location = op.location
    assert isinstance(location, ir.FileLineColLoc)
    return location.start_line


def _place_with_users(ops: list[ir.Operation], places: list[int], sites: Sites) -> None:
    """Give operations without sites the sites of their users."""
    for number in reversed(range(len(ops))):  # users come after what they use
        op = ops[number]
        if not places[number] and op.results and not op.regions:
            users = [_number(use.owner) for result in op.results for use in result.uses]
            places[number] = sites.of_users(places[user] for user in users)


def _unmarked(text: str) -> tuple[list[str], list[int | None], dict[int, int]]:
    """Return lines without marks, the number of the operation of each line, and the first line of each operation."""
    lines: list[str] = []
    marked: list[int | None] = []
    starts: dict[int, int] = {}
    opened: list[int] = []
    size = 0
    for line in text.splitlines():
        marks = _MARK.findall(line)
        line = _MARK.sub("", line)
        size += len(line)
        if size > READABLE_LIMIT:
            lines.append("// truncated")
            marked.append(None)
            break
        number = int(marks[-1]) if marks else None
        first = len(lines)
        if line.lstrip().startswith("}") and opened:
            first = opened.pop()  # the location of an operation with regions is behind its last one
            marked[first] = marked[first] if number is None else number
            if line.endswith("{"):
                opened.append(first)
        elif line.endswith("{"):
            opened.append(first)
            number = None
        if number is not None and not line.lstrip().startswith("^"):
            starts[number] = first
        lines.append(line)
        marked.append(number)
    return lines, marked, starts


def _nodes(ops: list[ir.Operation], starts: dict[int, int]) -> Iterator[Node]:
    """Yield the arguments and operations of functions, with the values they use of each other."""
    nodes: dict[tuple[int, int], int] = {}

    def inputs(op: ir.Operation) -> Iterable[int]:
        used = [value for operation in operations(op) for value in operation.operands]
        return dict.fromkeys(nodes[key] for key in map(_key, used) if key in nodes)

    for function in ops:
        if function.name != "func.func":
            continue
        for block in function.regions[0].blocks:
            for argument in block.arguments:
                nodes[_key(argument)] = len(nodes)
                name = _name(function, "arg_attrs", argument.arg_number) or f"arg{argument.arg_number}"
                yield Node(starts.get(_number(function), 0), f"input {name}", ())
            for op in (op.operation for op in block.operations):
                number = _number(op)
                used = tuple(inputs(op))
                constant = _CONSTANT.search(op.name) if not op.operands else op.results and not op.regions and not used
                if number not in starts or constant:  # what many share says nothing about the flow of data
                    continue
                nodes[number, -1] = len(nodes)
                yield Node(starts[number], _label(function, op), used)


def _label(function: ir.Operation, op: ir.Operation) -> str:
    """Return the name of ``op``; of a return, ``output`` and the names of the results."""
    if op.name not in ("func.return", "return"):
        return op.name
    names = (_name(function, "res_attrs", number) for number in range(len(op.operands)))
    return " ".join(("output", ", ".join(filter(None, names)))).strip()


def _name(function: ir.Operation, attribute: str, number: int) -> str:
    """Return the name of an argument or a result of ``function``; empty without one."""
    if attribute not in function.attributes:
        return ""
    attributes = ir.DictAttr(ir.ArrayAttr(function.attributes[attribute])[number])
    return ir.StringAttr(attributes[NAME]).value if NAME in attributes else ""


def _key(value: ir.Value) -> tuple[int, int]:
    """Return the key of ``value`` in `_nodes`: the number of its operation, and its number as an argument."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return _number(owner.owner), ir.BlockArgument(value).arg_number
    return _number(owner), -1
