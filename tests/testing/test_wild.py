"""The table of wild models, and the page of their results. `python -m testing.wild` runs them."""

from __future__ import annotations

import ast

from testing.wild.__main__ import page_of
from testing.wild.models import MODELS


def test_models_have_pins_names_and_code() -> None:
    assert len({row.name for row in MODELS}) == len(MODELS) >= 40
    for row in MODELS:
        assert row.package.count("==") == 1, row.package
        names = {node.id for node in ast.walk(ast.parse(row.build)) if isinstance(node, ast.Name)}
        assert {"model", "inputs"} <= names, row.package


def test_page_counts_what_was_captured() -> None:
    first, second, third = MODELS[:3]
    page = page_of(
        {
            first.name: {"built": "yes", "captured": "2 assumptions", "linalg-on-tensors": "equals eager"},
            second.name: {"built": "yes", "captured": "ExportError", "functions": "2 functions, 1 breaks, equal eager"},
            third.name: {"built": "ImportError: no module"},
        }
    )
    for row in (
        f"| models of the table that were run | 3 of {len(MODELS)} |",
        "| built | 2 |",
        "| captured as one graph | 1 |",
        "| of these, under assumptions | 1 |",
        "| captured as functions with Python between them only | 1 |",
        "| linalg-on-tensors: wrong numbers | 0 |",
    ):
        assert row in page
