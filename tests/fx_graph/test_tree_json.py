"""The structure of nested inputs and outputs as JSON: what is read, and that reading imports nothing."""

import enum
import json
import sys
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree

from fx_importer.fx_graph.tree_json import UnknownNamedTuple, UnknownType, tree_from_json, tree_to_json


class Point(NamedTuple):
    x: Any
    y: Any


class Shade(enum.Enum):
    DARK = 1


@dataclass
class Pair:
    first: Any
    second: Any


class Shaded:
    pass


torch.export.register_dataclass(Pair, serialized_type_name="tests.Pair")
pytree.register_pytree_node(
    Shaded, lambda _: ([], Shade.DARK), lambda *_: Shaded(), serialized_type_name="tests.Shaded"
)


@pytest.mark.parametrize(
    "value",
    [
        1,
        (1, [2, 3], {}),
        {"a": 1, 2: [3], None: ()},
        OrderedDict([("b", 1), ("a", (2,))]),
        deque([1, 2], maxlen=4),
        deque([1]),
        defaultdict(list, {"k": [1, 2]}),
        Pair(1, {"x": 2}),
    ],
    ids=repr,
)
def test_round_trip(value):
    spec = pytree.tree_structure(value)
    assert tree_from_json(json.loads(json.dumps(tree_to_json(spec)))) == spec


def test_named_tuple_of_the_caller():
    spec = pytree.tree_structure(Point(1, [2]))
    found = json.loads(json.dumps(tree_to_json(spec)))
    assert tree_from_json(found, types=[Point]) == spec
    with pytest.raises(UnknownNamedTuple, match="test_tree_json.Point"):
        tree_from_json(found)


def test_enumeration_of_the_caller():
    spec = pytree.tree_structure(Shaded())
    found = json.loads(json.dumps(tree_to_json(spec)))
    assert tree_from_json(found, types=[Shade]) == spec
    with pytest.raises(UnknownType, match=r"test_tree_json:Shade, in the context of tests\.Shaded"):
        tree_from_json(found)


def node(kind, context, *children):
    return {"type": kind, "context": context, "children_spec": list(children)}


LEAF = node(None, None)
ENUM = json.dumps([{"__enum__": True, "fqn": "untrusted_module:Colour", "name": "RED"}])
FACTORY = {"default_factory_module": "untrusted_module", "default_factory_name": "make", "dict_context": ["a"]}


@pytest.mark.parametrize(
    "tree",
    [
        node("builtins.dict", ENUM, LEAF),
        node("builtins.list", ENUM, LEAF),
        node("collections.OrderedDict", ENUM, LEAF),
        node("collections.deque", ENUM, LEAF),
        node("tests.Pair", ENUM, LEAF, LEAF),
        node("tests.Shaded", ENUM),
        node("collections.defaultdict", FACTORY, LEAF),
        node("collections.namedtuple", "untrusted_module.Point", LEAF, LEAF),
        node("untrusted_module.Point", "null", LEAF),
    ],
    ids=lambda tree: tree["type"],
)
def test_nothing_is_imported(tmp_path, monkeypatch, tree):
    ran = tmp_path / "ran"
    (tmp_path / "untrusted_module.py").write_text(f"open({str(ran)!r}, 'w').close()")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises((UnknownType, ValueError)):
        tree_from_json([1, tree])
    assert not ran.exists()
    assert "untrusted_module" not in sys.modules


@pytest.mark.parametrize(
    "tree",
    [
        LEAF,
        [2, LEAF],
        [1, node(None, None, LEAF)],
        [1, node("builtins.dict", '["a"]')],
        [1, node("builtins.dict", '["a", "a"]', LEAF, LEAF)],
        [1, node("builtins.dict", '[["a"]]', LEAF)],
        [1, node("builtins.dict", "no JSON", LEAF)],
        [1, node("collections.deque", "1", LEAF, LEAF)],
        [1, node(3, "null")],
        [1, {"type": "builtins.list"}],
    ],
)
def test_what_is_no_structure(tree):
    with pytest.raises((ValueError, KeyError, TypeError)):
        tree_from_json(tree)
