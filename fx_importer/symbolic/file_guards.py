"""Guards in the text of a ``.pt2`` file, which torch would execute: conditions on the sizes of the inputs."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.errors import UsageError
from fx_importer.fx_graph.tree_paths import leaves_with_path
from fx_importer.symbolic.arithmetic import Arithmetic
from fx_importer.symbolic.expressions import FUNCTIONS, MORE, ONE

_LOG = logging.getLogger(__name__)
_FUNCTIONS: Mapping[str, tuple[Callable[..., Any], range]] = {
    **FUNCTIONS,
    "max": (lambda *sizes: _reduced(torch.sym_max, sizes), MORE),
    "min": (lambda *sizes: _reduced(torch.sym_min, sizes), MORE),
    "float": (torch.sym_float, ONE),
    "int": (torch.sym_int, ONE),
    "torch.sym_float": (torch.sym_float, ONE),
}
_PROPERTIES: Mapping[str, Callable[[Tensor], Any]] = {
    "size": Tensor.size,
    "stride": Tensor.stride,
    "storage_offset": Tensor.storage_offset,
    "dim": Tensor.dim,
}


def assume(program: ExportedProgram, guard: str) -> None:
    """Let the shape environment of ``program`` record the condition ``guard``. It is interpreted, never executed.

    A guard with a function that is not known here is omitted and logged.

    Raises:
        UsageError: if it does not hold for the sizes of the program itself.
    """
    sources = _sources(program)
    values: dict[str, Any] = {}

    def symbol(node: ast.expr) -> str | None:
        if not isinstance(node, ast.Subscript | ast.Call):
            return None
        text = ast.unparse(node)
        if text not in values and (value := _property(node, sources)) is not None:
            values[text] = value
        return text if text in values else None

    try:
        arithmetic = Arithmetic(ast.parse(guard.strip(), mode="eval").body, symbol, _FUNCTIONS)
    except (SyntaxError, ValueError, TypeError, IndexError, MemoryError, RecursionError):
        _LOG.warning("callers do not check the guard %s of the program", guard[:200])
        return
    try:
        holds = bool(arithmetic.value(values))
    except (ArithmeticError, TypeError, ValueError) as error:
        raise UsageError(f"the guard {guard[:200]!r} of the program cannot be computed: {error}") from None
    if not holds:
        raise UsageError(f"the guard {guard[:200]!r} of the program does not hold for its own sizes")


def _property(node: ast.expr, sources: Mapping[str, Any]) -> Any:
    """Return the number that ``node`` reads from an input, such as ``L['x'].size()[0]``; None for other nodes."""
    value = sources.get(ast.unparse(node))
    if isinstance(value, int | float | torch.SymInt | torch.SymFloat | torch.SymBool):
        return value
    match node:
        case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=int() as axis)):
            sizes = _called(call, sources)
            return None if sizes is None else sizes[axis]
        case ast.Call():
            number = _called(node, sources)
            return None if isinstance(number, tuple) else number
    return None


def _called(node: ast.Call, sources: Mapping[str, Any]) -> Any:
    match node:
        case ast.Call(func=ast.Attribute(value=source, attr=name), args=[], keywords=[]) if name in _PROPERTIES:
            tensor = sources.get(ast.unparse(source))
            return _PROPERTIES[name](tensor) if isinstance(tensor, Tensor) else None
    return None


def _sources(program: ExportedProgram) -> dict[str, Any]:
    """Return the inputs of ``program``, as fake tensors and numbers, by their names in guards: ``L['x'][0]``."""
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    inputs = [
        nodes[user_input].meta["val"] if isinstance(user_input, str) and user_input in nodes else user_input
        for user_input in program.graph_signature.user_inputs
    ]
    sources = {f"L['flat_args'][{index}]": value for index, value in enumerate(inputs)}
    spec = program.call_spec.in_spec
    if spec is None or spec.num_leaves != len(inputs):
        return sources
    args, kwargs = pytree.tree_unflatten(inputs, spec)
    signature = program.module_call_graph[0].signature
    names = (signature and signature.forward_arg_names) or [*(f"arg_{index}" for index in range(len(args))), *kwargs]
    for name, argument in zip(names, [*args, *kwargs.values()], strict=False):
        roots = [f"L[{name!r}]", re.sub(r"^(.+)_(\d+)$", r"L['\1'][\2]", name)]  # of `*name` too
        for path, value in leaves_with_path(argument):
            sources.update((root + pytree.keystr(path), value) for root in roots)
    return sources


def _reduced(function: Callable[[Any, Any], Any], sizes: tuple[Any, ...]) -> Any:
    result = sizes[0]
    for size in sizes[1:]:
        result = function(result, size)
    return result
