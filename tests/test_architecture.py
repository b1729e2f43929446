"""The rules of docs/architecture.md on the source of the package, other than those on imports."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "fx_importer"


def test_torch_types_are_parsed_in_one_file():
    """A regular expression on the text of torch types is in ``mlir/types.py``, and nowhere else."""
    parsing = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and r"!torch\." in node.value
    }
    assert parsing == {"mlir/types.py"}
