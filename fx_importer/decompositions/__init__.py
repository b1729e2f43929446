"""Decompositions of operators into other operators, in one table per output type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._ops import OpOverload

from fx_importer.decompositions.engine.decompose import decompose, decompose_calls, expand_packets
from fx_importer.decompositions.engine.overrides import Overrides, leaving
from fx_importer.decompositions.engine.table import Decomposition, DecompositionTable, decomposes
from fx_importer.decompositions.tables.base import BASE
from fx_importer.decompositions.tables.linalg import LINALG
from fx_importer.decompositions.tables.stablehlo import STABLEHLO
from fx_importer.decompositions.tables.torch_dialect import TORCH
from fx_importer.decompositions.tables.tosa import TOSA

__all__ = [
    "BASE",
    "LINALG",
    "STABLEHLO",
    "TORCH",
    "TOSA",
    "Decomposition",
    "DecompositionTable",
    "Overrides",
    "decompose",
    "decompose_calls",
    "decomposes",
    "expand_packets",
    "get_decomposition_table",
    "leaving",
]


def get_decomposition_table() -> dict[OpOverload, Callable[..., Any]]:
    """Return the table for linalg on tensors as a new dictionary."""
    return dict(LINALG)
