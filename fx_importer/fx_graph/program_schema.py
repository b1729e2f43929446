"""The structure of a serialized program, checked against torch's own dataclasses of it.

Every field must be known and of its type. What text means follows from the field that holds it, by class and name of
the field, never from the names of tensors, modules or keys, which are the file's own.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from torch._export.serde import schema
from torch._export.serde.union import _Union

from fx_importer.fx_graph.program_checks import (
    check_guard,
    check_identifier,
    check_json,
    check_name,
    check_operator,
    check_size,
    check_symbol,
    check_tensor_record,
    check_tree,
)

Check = Callable[[Any], None]
_MAX_INTEGER = 2**64
_INFINITE = ("Infinity", "-Infinity", "NaN")
"""How torch writes floats that JSON lacks."""


class Misfit(ValueError):
    """A value that is not what its field holds; the message says which."""


def check_program(model: object) -> None:
    """Check the parsed ``models/model.json``.

    Raises:
        Unsafe: if reading it would do more than make a graph of operators.
        Misfit: if it is not a program.
    """
    _checker(schema.ExportedProgram)(model)


def check_payload(listed: object) -> None:
    """Check the parsed list of weights or constants. Raises as `check_program` does."""
    _checker(schema.PayloadConfig)(listed)


def _any_text(text: str) -> None:
    """Accept text that torch keeps as it is, or writes into source code as a literal."""


def _check_target_path(text: str) -> None:
    """Check the functions in ``source_fn_stack``, which torch looks up in its own modules."""
    for entry in text.split(";"):
        for name in entry.rpartition(",")[2].split("."):
            check_name(name)
            if name.startswith("__"):
                raise Misfit(f"{entry[:80]!r} is not a function that was traced")


_METADATA: Mapping[str, Check] = {
    "source_fn_stack": _check_target_path,
    "custom": check_json,
    "from_node": check_json,
}
_TEXT: Mapping[tuple[str, str], Check] = {
    ("SymExpr", "expr_str"): check_size,
    ("SymIntArgument", "as_name"): check_identifier,
    ("SymFloatArgument", "as_name"): check_identifier,
    ("SymBoolArgument", "as_name"): check_identifier,
    ("TensorArgument", "name"): check_identifier,
    ("TokenArgument", "name"): check_identifier,
    ("GraphArgument", "name"): check_identifier,
    ("CustomObjArgument", "name"): check_identifier,
    ("InputToConstantInputSpec", "name"): check_identifier,
    ("NamedArgument", "name"): check_identifier,
    ("Node", "name"): check_identifier,
    ("Node", "target"): check_operator,
    ("Argument", "as_operator"): check_operator,
    ("Argument", "as_string"): _any_text,
    ("Argument", "as_strings"): _any_text,
    ("ConstantValue", "as_string"): _any_text,
    ("ModuleCallSignature", "in_spec"): check_tree,
    ("ModuleCallSignature", "out_spec"): check_tree,
    ("ModuleCallSignature", "forward_arg_names"): check_identifier,
    ("NamedTupleDef", "field_names"): check_identifier,
    ("ExportedProgram", "guards_code"): check_guard,
    ("ExportedProgram", "torch_version"): _any_text,
    ("PayloadMeta", "path_name"): check_tensor_record,
}
"""Checks of the text in a field, in lists and as values of dictionaries too. Other text is a name in quotes."""
_KEYS: Mapping[tuple[str, str], Check] = {
    ("Graph", "tensor_values"): check_identifier,
    ("Graph", "sym_int_values"): check_identifier,
    ("Graph", "sym_float_values"): check_identifier,
    ("Graph", "sym_bool_values"): check_identifier,
    ("Graph", "custom_obj_values"): check_identifier,
    ("ExportedProgram", "range_constraints"): check_symbol,
}


@functools.cache
def _checker(kind: type) -> Check:
    """Return the check of an object of ``kind``, a dataclass or union of torch's schema."""
    hints = typing.get_type_hints(kind, globalns=dict(vars(schema)))
    fields = {field.name: field for field in dataclasses.fields(kind)}
    required = {
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    union = issubclass(kind, _Union)
    made: dict[str, Check] = {}  # on demand: an argument may hold a graph, which has arguments

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise Misfit(f"{kind.__name__} is {str(value)[:80]!r}, which is not an object")
        if union and len(value) != 1:
            raise Misfit(f"{kind.__name__} has {len(value)} values where one is expected")
        if not union and (missing := required.difference(value)):
            raise Misfit(f"{kind.__name__} lacks {', '.join(sorted(missing))}")
        for name, part in value.items():
            if name not in fields:
                raise Misfit(f"{kind.__name__} has {name[:80]!r}, which torch {_version()} does not know")
            if name not in made:
                made[name] = _part_checker(hints[name], kind.__name__, name)
            made[name](part)

    return check


def _version() -> str:
    return ".".join(map(str, schema.SCHEMA_VERSION)) + " of the schema"


def _part_checker(hint: Any, kind: str, field: str) -> Check:
    """Return the check of a value of the type ``hint`` in a field."""
    where = f"{kind}.{field}"
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = _part_checker(next(argument for argument in arguments if argument is not type(None)), kind, field)
        return lambda value: None if value is None else inner(value)
    if origin is list:
        return _list_checker(_part_checker(arguments[0], kind, field), where)
    if origin is dict:
        keys = _KEYS.get((kind, field), check_name)
        if field == "metadata":
            return _metadata_checker(where)
        return _dict_checker(keys, _part_checker(arguments[1], kind, field), where)
    if dataclasses.is_dataclass(hint):
        return _checker(typing.cast(type, hint))
    return _scalar_checker(hint, where, _TEXT.get((kind, field), check_name))


def _list_checker(inner: Check, where: str) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, list):
            raise Misfit(f"{where} is not a list")
        for part in value:
            inner(part)

    return check


def _dict_checker(keys: Check, inner: Check, where: str) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise Misfit(f"{where} is not an object")
        for name, part in value.items():
            keys(name)
            inner(part)

    return check


def _metadata_checker(where: str) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            raise Misfit(f"{where} is not an object of strings")
        for name, text in value.items():
            check_name(name)
            _METADATA.get(name, _any_text)(text)

    return check


def _scalar_checker(hint: Any, where: str, text: Check) -> Check:
    def check(value: Any) -> None:
        if hint is str:
            fits = isinstance(value, str)
        elif hint is bool:
            fits = isinstance(value, bool)
        elif hint is float:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            fits = value in _INFINITE or (number and abs(value) < _MAX_INTEGER**16 and math.isfinite(value))
        elif isinstance(hint, type) and issubclass(hint, IntEnum):
            fits = type(value) is int and value in hint._value2member_map_
        else:
            fits = hint is int and type(value) is int and abs(value) <= _MAX_INTEGER
        if not fits:
            raise Misfit(f"{where} is {str(value)[:80]!r}, which is not a {getattr(hint, '__name__', hint)} that fits")
        if hint is str:
            text(value)

    return check
