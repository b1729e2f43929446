"""Measurements of the code base."""

import ast
from pathlib import Path

from benchmarks.house import cycles, folder_sizes, imports, places_of_engines, repeated_classes, uses_private_torch

A, B, C = Path("a.py"), Path("b.py"), Path("engines/c.py")


def test_cycles_are_found():
    trees = {
        A: ast.parse("import fx_importer.b"),
        B: ast.parse("def f():\n    from fx_importer import a"),
        C: ast.parse(""),
    }
    assert cycles(imports(trees, at_load=True)) == []
    assert cycles(imports(trees, at_load=False)) == [{A, B}]


def test_private_torch():
    uses = ("from torch._ops import OpOverload", "torch._C._get_mkldnn_enabled()", "from torch.fx import _pytree")
    assert all(uses_private_torch(ast.parse(source)) for source in uses)
    assert not uses_private_torch(ast.parse("torch.ops.aten._softmax(torch.ones(2))"))


def test_engines_and_classes():
    trees = {A: ast.parse("class X:\n    y = 'jit'"), B: ast.parse("class X: ..."), C: ast.parse("NAME = 'jit'")}
    assert places_of_engines(trees) == {A: 1}
    assert repeated_classes(trees) == ["X"]
    assert folder_sizes([Path(f"p/{number}.py") for number in range(26)]) == {"p": 26}
