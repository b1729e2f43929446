"""Statements of Python that take several lines: a call stack names one line of each."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fx_importer.frontend.torch_patches import warnings_filtered

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert)


def long_statements(source: str) -> Iterator[tuple[int, int]]:
    """Yield the first and last lines of simple multi-line statements of ``source``; none if it is not valid Python."""
    try:
        with warnings_filtered("ignore"):  # of escape sequences in strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, _SIMPLE) and node.end_lineno is not None and node.end_lineno > node.lineno:
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not is_text:
                yield node.lineno, node.end_lineno
