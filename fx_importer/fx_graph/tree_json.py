"""JSON of the structure of nested inputs and outputs, read without importing what it names.

The schema follows `torch.utils._pytree.treespec_dumps`: ``[1, node]``, where a node has the keys ``type`` (null for
a leaf), ``context`` and ``children_spec``. Types are looked up among the ones known in this process.
"""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from torch.utils import _pytree as pytree

from fx_importer.json_text import parse_json

_LEAF = {"type": None, "context": None, "children_spec": []}
_NAMED_TUPLE = "collections.namedtuple"
_NAMED_TUPLE_NODE: Any = namedtuple
"""The type of the node of a named tuple; its context is the class."""
_SEQUENCES: Mapping[str, type] = {"builtins.tuple": tuple, "builtins.list": list}
_MAPPINGS: Mapping[str, type] = {"builtins.dict": dict, "collections.OrderedDict": OrderedDict}
_FACTORIES: Mapping[str, Any] = {type_.__name__: type_ for type_ in (list, dict, tuple, set, int, float, bool, str)}
"""The default factories that are read; others would have to be imported."""

Types = Sequence[type]
"""Named tuples, enumerations and registered types that a reader accepts besides those with a name in torch."""


class UnknownType(Exception):
    """A type of inputs or outputs that is not known in this process; the message is its name."""


class UnknownNamedTuple(UnknownType):
    """A named tuple that is not known in this process."""


def tree_to_json(spec: pytree.TreeSpec) -> Any:
    """Return ``spec`` as JSON values; None if it has a type that is registered with torch without a name."""
    try:
        return [1, _node_to_json(spec)]
    except (NotImplementedError, TypeError):  # TypeError: a context that JSON cannot hold
        return None


def tree_from_json(record: Any, types: Types = ()) -> pytree.TreeSpec:
    """Return the structure that `tree_to_json` wrote. Nothing is imported.

    Raises:
        UnknownType: if it has a type that is neither in ``types`` nor registered with torch under its name.
        ValueError, KeyError, TypeError: if it is not a tree.
    """
    version, node = record
    if version != 1:
        raise ValueError(f"structures of version {version!r} are not known")
    return _node_from_json(node, {qualified_name(type_): type_ for type_ in types})


def qualified_name(type_: type) -> str:
    """Return ``module.Name``."""
    return f"{type_.__module__}.{type_.__qualname__}"


def _node_to_json(spec: pytree.TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return _LEAF
    children = [_node_to_json(spec.child(index)) for index in range(spec.num_children)]
    if spec.type is _NAMED_TUPLE_NODE:
        registered = pytree.SUPPORTED_SERIALIZED_TYPES.get(spec.context)
        name = qualified_name(spec.context) if registered is None else registered.serialized_type_name
        return {"type": _NAMED_TUPLE, "context": name, "children_spec": children}
    _, node = json.loads(pytree.treespec_dumps(pytree.TreeSpec(spec.type, spec.context, [])))
    return {**node, "children_spec": children}


def _node_from_json(node: Any, types: Mapping[str, type]) -> pytree.TreeSpec:
    kind, context = node["type"], node["context"]
    children = [_node_from_json(item, types) for item in node["children_spec"]]
    if kind is None:
        if children or context is not None:
            raise ValueError("a leaf has neither a context nor children")
        return pytree.tree_structure(0)
    if not isinstance(kind, str):
        raise ValueError(f"{kind!r} is not a type")
    if kind in _SEQUENCES:
        if context not in ("null", None):
            raise ValueError(f"a {kind} has no context")
        return pytree.TreeSpec(_SEQUENCES[kind], None, children)
    if kind in _MAPPINGS:
        return pytree.TreeSpec(_MAPPINGS[kind], _keys(parse_json(context), children), children)
    if kind == "collections.deque":
        length = parse_json(context)
        if length is not None and (type(length) is not int or length < len(children)):
            raise ValueError(f"{length!r} is not a length of a deque of {len(children)}")
        return pytree.TreeSpec(deque, length, children)
    if kind == "collections.defaultdict":
        return pytree.TreeSpec(defaultdict, _factory_and_keys(context, children), children)
    if kind == _NAMED_TUPLE:
        return pytree.TreeSpec(_NAMED_TUPLE_NODE, _named_tuple(context, len(children), types), children)
    return _registered(kind, context, children, types)


def _keys(keys: Any, children: Sequence[Any]) -> list[Any]:
    if not isinstance(keys, list) or any(isinstance(key, list | dict) for key in keys):
        raise ValueError(f"{keys!r} are no keys")
    if len(keys) != len(children) or len(set(keys)) != len(keys):
        raise ValueError(f"the keys {keys!r} are not those of {len(children)} entries")
    return keys


def _factory_and_keys(context: Any, children: Sequence[Any]) -> list[Any]:
    name = context["default_factory_name"]
    if context["default_factory_module"] != "builtins" or name not in _FACTORIES:
        raise UnknownType(f"a defaultdict of {context['default_factory_module']}.{name}, which is not a builtin type")
    return [_FACTORIES[name], _keys(context["dict_context"], children)]


def _named_tuple(name: Any, length: int, types: Mapping[str, type]) -> type:
    if not isinstance(name, str):
        raise ValueError(f"{name!r} is not the name of a type")
    named_tuple: Any = types.get(name) or pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name)
    if named_tuple is None:
        raise UnknownNamedTuple(name)
    if not pytree.is_namedtuple_class(named_tuple) or len(named_tuple._fields) != length:
        raise ValueError(f"'{name}' is not a named tuple of {length} fields here")
    return named_tuple


def _registered(name: str, context: Any, children: list[Any], types: Mapping[str, type]) -> pytree.TreeSpec:
    """Return a node of a type that the user has registered with torch, as `torch.export.register_dataclass` does."""
    type_: Any = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name) or types.get(name)
    record = pytree.SUPPORTED_SERIALIZED_TYPES.get(type_)
    if type_ is None or record is None or pytree.is_namedtuple_class(type_):
        raise UnknownType(name)
    if record.from_dumpable_context is not None:
        try:
            return pytree.TreeSpec(type_, record.from_dumpable_context(context), children)
        except Exception as error:  # of any type: the user has registered this function
            raise ValueError(f"{context!r} is not a context of {name}: {error}") from error

    def enumerated(value: dict[str, Any]) -> Any:
        if "__enum__" not in value:
            return value
        kind: Any = types.get(str(value["fqn"]).replace(":", "."))
        if not isinstance(kind, type) or not issubclass(kind, Enum):
            raise UnknownType(f"{value['fqn']}, in the context of {name}")
        return kind[value["name"]]

    return pytree.TreeSpec(type_, json.loads(context, object_hook=enumerated), children)


def to_plain(value: Any) -> Any:
    """Return ``value`` as lists, dictionaries and strings, without fields that have their default values."""
    if isinstance(value, pytree.TreeSpec):
        return tree_to_json(value)
    if dataclasses.is_dataclass(value):
        pairs = [(field_, getattr(value, field_.name)) for field_ in dataclasses.fields(value)]
        return {field.name: to_plain(content) for field, content in pairs if content != field.default}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value
