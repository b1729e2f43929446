"""Checks of text in a ``.pt2`` file that torch would look up, execute, import or use as a name."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, _OpNamespace

from fx_importer.json_text import parse_json
from fx_importer.symbolic.size_parser import MAX_INTEGER, MAX_LENGTH, symbol_name

_IDENTIFIER = re.compile(r"\w{0,4096}", re.ASCII)
_NAME = re.compile(r"""[^"'\\\x00-\x1f\x7f]{0,4096}""")
"""Names end up in source code that torch.fx generates and executes: those of nodes and arguments as identifiers, those
of parameters and modules in quotes."""
_TENSOR_RECORD = re.compile(r"(weight|tensor)_\d+", re.ASCII)
_IMPORTING_TREES = frozenset(("collections.defaultdict",))
_ENUM = "__enum__"
"""The key of an object in the context of a tree that names a class to import."""
_FILE_NAMESPACES = frozenset(("debugprims",))
"""Namespaces of operators that open files by names of their own; others have an argument of such a name."""
_FILE_ARGUMENT = re.compile(r"file|path|dir$|url", re.IGNORECASE)
_PLAIN_PRIMS = frozenset(("prim::device", "prim::dtype", "prim::layout"))
"""Operators of TorchScript's own namespace that programs have; others print, or run Python."""
_MAX_POWER, _MAX_NESTING = 64, 80


class Unsafe(Exception):
    """A part of a file is not plain data; the message says which."""


def check_name(text: str) -> None:
    """Raise `Unsafe` unless ``text`` can stand in quotes in source code."""
    if not _NAME.fullmatch(text):
        raise Unsafe(f"{text[:80]!r} is not a name")


def check_identifier(text: str) -> None:
    """Raise `Unsafe` unless ``text`` is empty or can be a variable in source code."""
    if not _IDENTIFIER.fullmatch(text):
        raise Unsafe(f"{text[:80]!r} is not the name of a variable")


def check_tensor_record(text: str) -> None:
    """Raise `Unsafe` unless ``text`` is the name of an archive's entry that holds the bytes of a tensor."""
    if not _TENSOR_RECORD.fullmatch(text):
        raise Unsafe(f"{text[:80]!r} is not a tensor")


def check_symbol(text: str) -> None:
    """Raise ValueError unless ``text`` is the name of a symbolic size."""
    symbol_name(text)


def check_size(text: str) -> None:
    """Raise `Unsafe` if ``text`` is too long for a size, which `parse_size` reads when the program is made."""
    if len(text) > MAX_LENGTH:
        raise Unsafe(f"a size of {len(text):,} characters is not an expression")


def check_json(text: str) -> None:
    """Raise ValueError unless ``text`` is JSON."""
    parse_json(text)


def check_operator(name: str) -> None:
    """Raise `Unsafe` unless ``name`` names an operator or a function of numbers."""
    first, *rest = name.split(".")
    if first in ("_operator", "math") and len(rest) == 1 and rest[0] in _NUMBER_FUNCTIONS:
        return
    if name.startswith("torch.sym_") and len(rest) == 1:
        return
    target: Any = torch
    if first == "torch" and len(rest) in (3, 4) and rest[0] == "ops" and not any(part[:2] == "__" for part in rest):
        target = getattr(torch.ops, rest[1], None)
        for part in rest[2:] if target is torch.ops.higher_order or isinstance(target, _OpNamespace) else ():
            target = getattr(target, part, None)
        if isinstance(target, HigherOrderOperator):
            return
        if isinstance(target, OpOverload):
            if opens_file(target):
                raise Unsafe(f"the program calls '{name[:200]}', which opens a file")
            if target.namespace == "prim" and target._schema.name not in _PLAIN_PRIMS:
                raise Unsafe(f"the program calls '{name[:200]}', which is of TorchScript's interpreter")
            return
        if target is None or not callable(target):
            raise Unsafe(f"the operator '{name[:200]}' is not registered in this process: import what defines it")
    raise Unsafe(f"the program calls '{name[:200]}', which is not an operator")


_NUMBER_FUNCTIONS = frozenset(
    (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs", "eq", "ne", "lt", "le"),
        *("gt", "ge", "and_", "or_", "xor", "not_", "inv", "invert", "lshift", "rshift", "getitem", "index"),
        *("ceil", "floor", "trunc", "sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan"),
        *("exp", "log", "log2", "isnan", "isinf", "isfinite"),
    )
)


def opens_file(operator: OpOverload) -> bool:
    """Return whether ``operator`` reads or writes a file, as an argument of text named for one tells."""
    texts = (argument.name for argument in operator._schema.arguments if "str" in str(argument.type))
    return operator.namespace in _FILE_NAMESPACES or any(map(_FILE_ARGUMENT.search, texts))


_GUARD_METHODS = frozenset(("size", "stride", "storage_offset", "dim", "item"))
_GUARD_FUNCTIONS = frozenset(
    ("max", "min", "abs", "float", "int", "round", "Max", "Min", "Eq", "Ne", "Mod", "FloorDiv")
)
_GUARD_MODULES = {"math": _NUMBER_FUNCTIONS | {"inf", "nan"}, "torch": frozenset()}
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
_LOGIC = (ast.And, ast.Or, ast.BitAnd, ast.BitOr, ast.UAdd, ast.USub, ast.Not, ast.Invert)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot)
_FORMS = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    *_ARITHMETIC,
    *_LOGIC,
    *_COMPARISONS,
    ast.Load,
)


def check_guard(text: str) -> None:
    """Raise `Unsafe` unless ``text``, which torch executes, compares sizes and numbers of the inputs."""
    if len(text) > MAX_LENGTH:
        raise Unsafe(f"a guard of {len(text):,} characters is not an expression")
    try:
        if _nesting(text) > _MAX_NESTING:
            raise ValueError
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise Unsafe(f"{text[:80]!r} is not an expression, as a guard is") from None
    texts = {id(node) for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    plain = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Subscript) for part in [node.slice]}
    plain |= {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.Compare) for part in (node.left, *node.comparators)
    }
    if not texts <= plain or not all(map(_is_guard, ast.walk(tree))):
        raise Unsafe(f"{text[:80]!r} is more than the arithmetic of a guard")


def _nesting(text: str) -> int:
    """Return how deeply brackets are nested in ``text``."""
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _is_guard(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=ast.Pow() | ast.LShift(), left=left, right=right):
            return _is_small_power((left, right))
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return name in _GUARD_FUNCTIONS
        case ast.Call(func=ast.Attribute(), keywords=[]):
            return True
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module in _GUARD_MODULES:
            return name in _GUARD_MODULES[module] or (module == "torch" and name.startswith("sym_"))
        case ast.Attribute(attr=name):
            return name in _GUARD_METHODS
        case ast.Constant(value=bool() | None):
            return True
        case ast.Constant(value=int() | float() as number):
            return abs(number) <= MAX_INTEGER
        case ast.Constant(value=str() as text):
            return bool(_NAME.fullmatch(text))
        case ast.Name(id=name):
            return not name.startswith("__")
    return isinstance(node, (*_FORMS, ast.Subscript))


def _is_small_power(arguments: Sequence[ast.expr]) -> bool:
    """Whether evaluating it takes little time: no numbers that grow without limit."""
    if any(isinstance(node, ast.Pow | ast.LShift) for part in arguments for node in ast.walk(part)):
        return False
    exponent = arguments[1]
    numbers = [node.value for node in ast.walk(exponent) if isinstance(node, ast.Constant)]
    whole = all(isinstance(node, ast.Constant | ast.UnaryOp | ast.UAdd | ast.USub) for node in ast.walk(exponent))
    return whole and all(isinstance(number, int | float) and abs(number) <= _MAX_POWER for number in numbers)


def check_tree(text: str) -> None:
    """Raise `Unsafe` unless reading ``text``, as of `pytree.treespec_dumps`, imports nothing."""
    try:
        _, tree = parse_json(text)
    except (ValueError, TypeError):
        raise Unsafe("the structure of its inputs or outputs cannot be read") from None
    _check_node(tree)
    for keywords in tree["children_spec"][1:2]:  # of (args, kwargs); parameters of the generated function
        for name in _keys(keywords.get("context")) if keywords.get("type") == "builtins.dict" else ():
            check_identifier(str(name))


def _check_node(node: Any) -> None:
    if not isinstance(node, dict) or not isinstance(node.get("children_spec"), list):
        raise Unsafe("the structure of its inputs or outputs cannot be read")
    kind, context = node.get("type"), node.get("context")
    if kind in _IMPORTING_TREES:
        raise Unsafe(f"its inputs or outputs hold a {kind}, which names a function to import")
    if _names_class(context):
        raise Unsafe("the structure of its inputs or outputs names a class to import")
    for name in _texts(context):
        check_name(name)
    for child in node["children_spec"]:
        _check_node(child)


def _names_class(context: Any) -> bool:
    """Return whether ``context``, or the JSON in its text, holds an object that torch reads as a member of an enum."""
    if isinstance(context, dict):
        return _ENUM in context or any(map(_names_class, [*context, *context.values()]))
    if isinstance(context, list):
        return any(map(_names_class, context))
    if not isinstance(context, str):
        return False
    try:
        inner = parse_json(context, finite=False)
    except ValueError:
        if _is_json(context):  # of the same key twice, for example, which torch would read
            raise Unsafe("the structure of its inputs or outputs cannot be read") from None
        return False
    return inner != context and _names_class(inner)


def _texts(context: Any) -> Iterator[str]:
    """Yield the text in ``context``, and in the JSON in its text: keys of dictionaries end up in source code."""
    if isinstance(context, dict):
        context = [*context, *context.values()]
    if isinstance(context, list):
        for part in context:
            yield from _texts(part)
    elif isinstance(context, str):
        try:
            inner = parse_json(context, finite=False)
        except ValueError:
            inner = context
        if isinstance(inner, dict | list):
            yield from _texts(inner)
        else:
            yield str(inner)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _keys(context: Any) -> list[Any]:
    try:
        keys = parse_json(context) if isinstance(context, str) else None
    except ValueError:
        keys = None
    if not isinstance(keys, list):
        raise Unsafe("the structure of its inputs or outputs cannot be read")
    return keys
