"""Operators of Inductor's own in graphs of TorchDynamo and in Inductor's decompositions, in terms of ATen."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fx_importer.fx_graph.operators import operator_named


def rules_of_dynamo() -> dict[Any, Callable[..., Any]]:
    """Return decompositions of operators that TorchDynamo puts into graphs, of those that this process has so far.

    Inductor registers them when it is imported, which TorchDynamo does before it uses them.
    """
    return {operator: rule for name, rule in _OF_DYNAMO.items() if (operator := operator_named(name)) is not None}


def rules_of_inductor() -> dict[Any, Callable[..., Any]]:
    """Return decompositions of operators that only Inductor's decompositions introduce."""
    prims, made = torch.ops.prims, importlib.import_module("torch._inductor.inductor_prims")
    return {
        prims._low_memory_max_pool_with_offsets.default: made._low_memory_max_pool_with_offsets_aten,
        prims._low_memory_max_pool_offsets_to_indices.default: made._low_memory_max_pool_offsets_to_indices_aten,
    } | rules_of_dynamo()


def _fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return ``a * b + c``, rounded twice, as eager PyTorch does for this operator on CPUs."""
    return a * b + c


_OF_DYNAMO = {"prims.fma.default": _fma}
"""By name. Compiled optimizers have ``prims.fma`` for ``addcmul_`` and ``addcdiv_`` with a tensor as ``value``."""
