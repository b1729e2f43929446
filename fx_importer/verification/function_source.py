"""The source of one function or class, and the names from outside that it reads."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import symtable
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any


class NotPythonError(Exception):
    """A value that cannot be written as a Python expression."""


Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Definition = Function | ast.ClassDef


@dataclass(frozen=True)
class Source:
    """A definition that can stand in another file, once the names that it reads are bound there."""

    name: str
    """The name that it binds; for a lambda, a name for it."""
    text: str
    reads: dict[str, Any]
    """The values of the names that it reads from its module and from enclosing functions."""


def described(value: Any) -> str:
    """Return the name of a function or class with its file and line, as far as they are known."""
    code = getattr(value, "__code__", None)
    name = getattr(value, "__qualname__", None) or repr(value)
    return f"'{name}' ({code.co_filename}:{code.co_firstlineno})" if isinstance(code, CodeType) else f"'{name}'"


def source_of(value: Any) -> Source:
    """Return the source of a function, a class, or an object that the decorators of a function made.

    Raises:
        NotPythonError: if there is no file with it, as for a function that was typed into an interpreter.
    """
    inner = inspect.unwrap(value)
    if inner is not value and not getattr(_node_of(inner), "decorator_list", []) and isinstance(value, FunctionType):
        inner = value  # a function that calls the other one, as one of its own names
    node = _node_of(inner)
    name = "function" if isinstance(node, ast.Lambda) else node.name
    if isinstance(node, ast.Lambda):
        node = ast.Assign([ast.Name(name, ast.Store())], node, lineno=1)
    elif inner is value:  # its decorators returned it as it is, or put it into another object
        node.decorator_list = []
    elif not node.decorator_list:
        raise NotPythonError(f"{described(value)} cannot be imported, and is a call of {type(value).__qualname__}")
    text = ast.unparse(ast.fix_missing_locations(node))
    scope = _scope(inner)
    return Source(name, text, {free: scope[free] for free in _free_names(text) if free in scope and free != name})


def _node_of(value: Any) -> Definition:
    try:
        lines = linecache.getlines(inspect.getsourcefile(value) or "")
        tree = ast.parse("".join(lines))
    except (OSError, TypeError, SyntaxError, ValueError):
        tree = ast.Module([], [])
    nodes = [node for node in ast.walk(tree) if isinstance(node, Definition) and _is_of(node, value)]
    if len(nodes) > 1 and isinstance(value, FunctionType):
        nodes = _narrowed(nodes, value.__code__)
    if len(nodes) != 1:
        reason = "its source cannot be found" if not nodes else "its line has several functions"
        raise NotPythonError(f"{described(value)} cannot be imported, and {reason}")
    return nodes[0]


def _narrowed(nodes: list[Definition], code: CodeType) -> list[Definition]:
    """Return those of ``nodes``, functions on one line, that have the parameters and the columns of ``code``."""
    names = list(code.co_varnames[: code.co_argcount])
    same: list[Definition] = [
        node for node in nodes if isinstance(node, Function) and [argument.arg for argument in node.args.args] == names
    ]
    positions = getattr(code, "co_positions", list[Any])  # since Python 3.11
    columns = [column for line, _, column, _ in positions() if column and line == code.co_firstlineno]
    if len(same) < 2 or not columns:
        return same
    return [node for node in same if node.col_offset <= min(columns) <= (node.end_col_offset or 0)]


def _is_of(node: Definition, value: Any) -> bool:
    """Whether ``node`` defines ``value``, by its name and its first line."""
    if isinstance(value, type):
        return isinstance(node, ast.ClassDef) and node.name == value.__name__
    line = value.__code__.co_firstlineno
    if isinstance(node, ast.Lambda):
        return value.__code__.co_name == "<lambda>" and node.lineno == line
    if isinstance(node, ast.ClassDef) or node.name != value.__code__.co_name:
        return False
    return line == min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _scope(value: Any) -> dict[str, Any]:
    """Return the values of names from outside of ``value``: of its module, and of enclosing functions."""
    if isinstance(value, type):
        return dict(vars(sys.modules[value.__module__]))
    closed: dict[str, Any] = {}
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        try:
            closed[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return {**value.__globals__, **closed}


def _free_names(text: str) -> list[str]:
    """Return the names that ``text`` reads and does not bind, except builtins, in order of the alphabet."""
    table = symtable.symtable(text, "<function>", "exec")
    bound = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned()}
    names = {name for scope in _scopes(table) for name in _globals_of(scope)}
    return sorted(name for name in names - bound if not hasattr(builtins, name))


def _globals_of(scope: symtable.SymbolTable) -> Iterator[str]:
    outermost = scope.get_type() == "module"
    for symbol in scope.get_symbols():
        if symbol.is_referenced() and (outermost or symbol.is_global()):
            yield symbol.get_name()


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _scopes(child)
