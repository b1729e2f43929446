"""Import of ``out_dtype``, which computes in the type that the arguments and the result promote to."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fx_importer.importing.handlers.schema_operators import call_overload
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.importing.schema_arguments import plan_for
from fx_importer.mlir.bindings import ir


def import_out_dtype(node: fx.Node, build: NodeBuilder) -> ir.Value:
    """Import ``out_dtype(operator, dtype, *args)`` with the type promotion of eager mode."""
    overload, wanted, *operands = node.args
    result: Any = wanted
    dtype = result
    for argument in operands:
        example = build.example(argument) if isinstance(argument, fx.Node) else argument
        if isinstance(example, (torch.Tensor, int, float)):
            dtype = torch.result_type(torch.empty(1, dtype=dtype), example)
    args = [_promoted(argument, dtype, build) for argument in operands]
    shape = build.example(node).shape
    plan = plan_for(overload)  # pyright: ignore[reportArgumentType]
    (value,) = call_overload(plan, args, node.kwargs, [build.types.tensor(dtype, shape)], build)
    return value if dtype == result else build.to_dtype(value, shape, result)


def _promoted(argument: Any, dtype: torch.dtype, build: NodeBuilder) -> Any:
    example = build.example(argument) if isinstance(argument, fx.Node) else None
    if isinstance(example, torch.Tensor) and example.dtype != dtype:
        return build.to_dtype(build.value(argument), example.shape, dtype)
    return argument
