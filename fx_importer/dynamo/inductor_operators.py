"""Operators of Inductor's own, in terms of ATen."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch


def rules_of_inductor() -> dict[Any, Callable[..., Any]]:
    """Return decompositions of operators that only Inductor's decompositions introduce."""
    prims, made = torch.ops.prims, importlib.import_module("torch._inductor.inductor_prims")
    return {
        prims._low_memory_max_pool_with_offsets.default: made._low_memory_max_pool_with_offsets_aten,
        prims._low_memory_max_pool_offsets_to_indices.default: made._low_memory_max_pool_offsets_to_indices_aten,
    }
