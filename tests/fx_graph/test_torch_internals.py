"""The list of torch's private names is complete, and the installed torch has them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import fx_importer
from fx_importer.fx_graph import torch_internals
from fx_importer.fx_graph.torch_internals import PRIVATE_NAMES, PrivateNames, lacking

SOURCES = sorted(Path(fx_importer.__file__).parent.rglob("*.py"))


def is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def imported(tree: ast.AST) -> dict[str, str]:
    """Return what each name of the source is bound to by an import of torch, anywhere in it."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {
                each.asname or "torch": each.name if each.asname else "torch"
                for each in node.names
                if of_torch(each.name)
            }
        elif isinstance(node, ast.ImportFrom) and node.module and of_torch(node.module):
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return found


def of_torch(module: str) -> bool:
    return module.split(".")[0] == "torch"


def names_in(tree: ast.AST) -> Iterator[str]:
    """Yield the names of torch that a source imports, or reads as attributes of what it imports."""
    names = imported(tree)
    yield from names.values()

    def path(node: ast.AST) -> str | None:
        if isinstance(node, ast.Attribute):
            return (base := path(node.value)) and f"{base}.{node.attr}"
        return names.get(node.id) if isinstance(node, ast.Name) else None

    yield from (name for node in ast.walk(tree) if isinstance(node, ast.Attribute) and (name := path(node)))


def listed_as(name: str) -> str | None:
    """Return ``name`` up to its private part, and further to the attribute of a module; None for a module."""
    parts = name.split(".")
    for count in range(2, len(parts) + 1):
        found = ".".join(parts[:count])
        if is_private(found) and not is_module(found):
            return found
    return None


def is_module(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def test_all_private_names_are_listed() -> None:
    used = {name for path in SOURCES for name in names_in(ast.parse(path.read_text(encoding="utf-8")))}
    private = {found for name in used if not name.startswith("torch.ops.") and (found := listed_as(name))}
    listed = {f"{each.module}.{name}" for each in PRIVATE_NAMES for name in each.names}
    assert private - listed == set(), "add them to PRIVATE_NAMES, with what would replace them"
    assert listed - private == set(), "take them out of PRIVATE_NAMES: nothing uses them"


def test_torch_has_all_private_names() -> None:
    assert [*lacking()] == []


def test_a_lacking_name_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        PrivateNames("torch._ops", ("OpOverload", "NotThere"), "torch.ops"),
        PrivateNames("torch._not_there", ("f",), "something else"),
    )
    monkeypatch.setattr(torch_internals, "PRIVATE_NAMES", names)
    assert [*lacking()] == [
        "torch has no torch._ops.NotThere: use torch.ops",
        "torch has no torch._not_there: use something else",
    ]
