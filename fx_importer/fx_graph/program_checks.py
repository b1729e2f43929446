"""Checks of the parts of a ``.pt2`` file that torch would evaluate, import or unpickle."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, _OpNamespace

_IDENTIFIER = re.compile(r"\w{0,4096}", re.ASCII)
_NAME = re.compile(r"""[^"'\\\x00-\x1f\x7f]{0,4096}""")
"""Names end up in source code that torch.fx generates and executes: those of nodes and arguments as identifiers, those
of parameters and modules in quotes."""
_IDENTIFIERS = frozenset(("name", "as_name", "forward_arg_names"))
_NODES = frozenset(("tensor_values", "sym_int_values", "sym_float_values", "sym_bool_values", "custom_obj_values"))
_FREE_TEXT = frozenset(("metadata", "as_string", "as_strings", "torch_version"))
"""Keys of text that torch keeps as text, or writes into source code as a literal."""
_TREES = frozenset(("in_spec", "out_spec"))
_IMPORTING_TREES = frozenset(("collections.defaultdict",))
_FILE_NAMESPACES = frozenset(("debugprims",))
"""Namespaces of operators that open files by names of their own; others have an argument ``filename``."""

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
_LOGIC = (ast.And, ast.Or, ast.BitAnd, ast.BitOr, ast.UAdd, ast.USub, ast.Not, ast.Invert)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_OPERATORS = (*_ARITHMETIC, *_LOGIC, *_COMPARISONS, ast.Load)
_FORMS = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare)
_FUNCTIONS = frozenset(
    (
        *("Abs", "Add", "And", "Eq", "Ge", "Gt", "Le", "Lt", "Max", "Min", "Mod", "Mul", "Ne", "Not", "Or", "Pow"),
        *("Equality", "Unequality", "GreaterThan", "LessThan", "StrictGreaterThan", "StrictLessThan", "Half"),
        *("ceiling", "floor", "sqrt", "Integer", "Float", "Rational", "Symbol", "Dummy", "Piecewise", "ExprCondPair"),
        *("FloorDiv", "ModularIndexing", "Where", "PythonMod", "CleanDiv", "CeilToInt", "FloorToInt", "CeilDiv"),
        *("LShift", "RShift", "PowByNatural", "FloatPow", "FloatTrueDiv", "IntTrueDiv", "TruncToFloat", "TruncToInt"),
        *("RoundToInt", "RoundDecimal", "ToFloat", "Identity", "IsNonOverlappingAndDenseIndicator"),
    )
)
"""Functions of sympy, and of torch's extensions of it, in sizes."""
_LONGEST, _GREATEST_POWER = 20_000, 64
_TENSOR_METHODS = frozenset(("size", "stride", "storage_offset", "dim", "item"))


class Unsafe(Exception):
    """A part of a file is not plain data; the message says which."""


def check_model(model: object) -> None:
    """Raise `Unsafe` unless loading ``model``, the parsed ``models/model.json``, only makes a graph of operators."""
    _check(model, "model.json", "")


def _check(value: Any, where: str, key: str) -> None:
    if key in _FREE_TEXT:
        return
    if isinstance(value, Mapping):
        for name, each in value.items():
            _check_text(name, where, _IDENTIFIER if key in _NODES else _NAME)
            _check(each, f"{where}: {name}" if len(where) < 200 else where, name)
    elif isinstance(value, list):
        for each in value:
            _check(each, where, key)
    elif isinstance(value, str):
        _check_string(value, where, key)


def _check_string(text: str, where: str, key: str) -> None:
    if key == "expr_str":
        check_expression(text)
    elif key == "guards_code":
        _check_code(text, _is_guard_call, "a guard")
    elif key in _TREES:
        check_tree(text)
    elif key in ("target", "as_operator"):
        check_operator(text)
    else:
        _check_text(text, where, _IDENTIFIER if key in _IDENTIFIERS else _NAME)


def _check_text(text: str, where: str, form: re.Pattern[str] = _NAME) -> None:
    if not form.fullmatch(text):
        raise Unsafe(f"{text[:80]!r} is no name ({where})")


def check_operator(name: str) -> None:
    """Raise `Unsafe` unless ``name`` names an operator or a function of numbers."""
    first, *rest = name.split(".")
    if first in ("_operator", "math") and len(rest) == 1 and rest[0] in _NUMBER_FUNCTIONS:
        return
    if name.startswith("torch.sym_") and len(rest) == 1:
        return
    target: Any = torch
    if first == "torch" and len(rest) in (3, 4) and rest[0] == "ops" and not any(each[:2] == "__" for each in rest):
        target = getattr(torch.ops, rest[1], None)
        for each in rest[2:] if target is torch.ops.higher_order or isinstance(target, _OpNamespace) else ():
            target = getattr(target, each, None)
        if isinstance(target, HigherOrderOperator):
            return
        if isinstance(target, OpOverload):
            if target.namespace not in _FILE_NAMESPACES and all(a.name != "filename" for a in target._schema.arguments):
                return
            raise Unsafe(f"the program calls '{name[:200]}', which opens a file")
        if target is None or not callable(target):
            raise Unsafe(f"the operator '{name[:200]}' is not registered in this process: import what defines it")
    raise Unsafe(f"the program calls '{name[:200]}', which is no operator")


_NUMBER_FUNCTIONS = frozenset(
    (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs", "eq", "ne", "lt", "le"),
        *("gt", "ge", "and_", "or_", "xor", "not_", "inv", "invert", "lshift", "rshift", "getitem", "index"),
        *("ceil", "floor", "trunc", "sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan"),
        *("exp", "log", "log2", "isnan", "isinf", "isfinite"),
    )
)


def check_expression(text: str) -> None:
    """Raise `Unsafe` unless ``text``, as of `sympy.srepr`, is arithmetic of numbers and symbols."""
    _check_code(text, _is_size_call, "a size")


def _is_size_call(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Name) or call.func.id not in _FUNCTIONS:
        return False
    texts = [
        argument.value
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]
    if call.func.id in ("Symbol", "Dummy", "Float"):
        return all(_SYMBOL.fullmatch(text) for text in texts)
    if call.func.id in _POWERS and not _is_small_power(call.args):
        return False
    return not texts and not call.keywords


_SYMBOL = re.compile(r"\w+|-?[\d.]+(e[+-]?\d{1,3})?", re.ASCII)
_POWERS = frozenset(("Pow", "PowByNatural", "FloatPow", "LShift"))


def _is_small_power(arguments: Sequence[ast.expr]) -> bool:
    """Whether evaluating it takes little time: no numbers that grow without limit."""
    if len(arguments) != 2 or any(map(_has_power, arguments)):
        return False
    constants = [node.value for node in ast.walk(arguments[1]) if isinstance(node, ast.Constant)]
    numbers = [constant for constant in constants if isinstance(constant, int | float)]
    return len(numbers) <= 2 and all(abs(number) <= _GREATEST_POWER for number in numbers)


def _has_power(expression: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Pow | ast.LShift) or (isinstance(node, ast.Name) and node.id in _POWERS)
        for node in ast.walk(expression)
    )


def _is_guard_call(call: ast.Call) -> bool:
    if call.keywords:
        return False
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in _TENSOR_METHODS or ast.unparse(call.func) == "math.isnan"
    return isinstance(call.func, ast.Name) and call.func.id in _FUNCTIONS


def _check_code(text: str, is_known_call: Any, what: str) -> None:
    if len(text) > _LONGEST:
        raise Unsafe(f"{what} of {len(text):,} characters is no expression")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise Unsafe(f"{text[:80]!r} is no expression, as {what} is") from None
    if what != "a guard" and _loose_texts(tree):
        raise Unsafe(f"{text[:80]!r} is more than the arithmetic of {what}")
    for node in ast.walk(tree):
        if not _is_arithmetic(node, is_known_call, guard=what == "a guard"):
            raise Unsafe(f"{text[:80]!r} is more than the arithmetic of {what}")


def _loose_texts(tree: ast.AST) -> set[int]:
    """Return the strings in an expression that are not arguments of a call; calls check their own."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    texts = {id(node) for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts - {id(argument) for call in calls for argument in call.args}


def _is_arithmetic(node: ast.AST, is_known_call: Any, *, guard: bool) -> bool:
    match node:
        case ast.BinOp(op=ast.Pow() | ast.LShift(), left=left, right=right):
            return _is_small_power((left, right))
        case ast.Call():
            return bool(is_known_call(node)) and len(node.keywords) <= 8
        case ast.Constant(value=value):
            # The calls of a size check the text in them.
            return isinstance(value, int | float) or (isinstance(value, str) and bool(_NAME.fullmatch(value)))
        case ast.Name(id=name):
            return not name.startswith("__")
        case ast.Subscript() | ast.Attribute():
            return guard and (isinstance(node, ast.Subscript) or node.attr in (*_TENSOR_METHODS, "isnan", "inf"))
    return isinstance(node, (*_FORMS, *_OPERATORS, ast.keyword))


def check_tree(text: str) -> None:
    """Raise `Unsafe` unless reading ``text``, as of `pytree.treespec_dumps`, imports nothing."""
    try:
        _, tree = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise Unsafe("the structure of its inputs or outputs cannot be read") from None
    _check_node(tree)
    for keywords in tree["children_spec"][1:2]:  # of (args, kwargs); parameters of the generated function
        for name in _keys(keywords.get("context")) if keywords.get("type") == "builtins.dict" else ():
            _check_text(str(name), "a keyword argument", _IDENTIFIER)


def _check_node(node: Any) -> None:
    if not isinstance(node, dict) or not isinstance(node.get("children_spec"), list):
        raise Unsafe("the structure of its inputs or outputs cannot be read")
    kind, context = node.get("type"), node.get("context")
    if kind in _IMPORTING_TREES:
        raise Unsafe(f"its inputs or outputs hold a {kind}, which names a function to import")
    if "__enum__" in json.dumps(context):
        raise Unsafe("the structure of its inputs or outputs names a class to import")
    if kind == "builtins.dict":
        for name in _keys(context):
            if isinstance(name, str):
                _check_text(name, "a key of the inputs or outputs")
    for each in node["children_spec"]:
        _check_node(each)


def _keys(context: Any) -> list[Any]:
    try:
        keys = json.loads(context) if isinstance(context, str) else None
    except (ValueError, RecursionError):
        keys = None
    if not isinstance(keys, list):
        raise Unsafe("the structure of its inputs or outputs cannot be read")
    return keys
