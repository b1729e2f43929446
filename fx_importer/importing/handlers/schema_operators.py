"""Schema-driven import of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from fx_importer.fx_graph.operators import aten
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.schema_arguments import OverloadPlan, plan_for, sibling
from fx_importer.mlir.bindings import ir

RENAMED: dict[Any, str] = {
    aten.sym_size.int: "aten.size.int",
    aten.sym_numel.default: "aten.numel",
    aten._local_scalar_dense.default: "aten.item",
}
"""Operators that have another name in the torch dialect."""
_FILLED: dict[Any, int] = {aten.full.default: 1, aten.full_like.default: 1, aten.scalar_tensor.default: 0}
"""Operators that fill a tensor with one number, and the position of that argument."""


def import_overload(node: fx.Node, build: NodeBuilder) -> ir.Value | Sequence[ir.Value]:
    """Import ``namespace.op.overload`` with its arguments in the schema's order and its defaults filled in.

    An operator that the torch dialect lacks becomes ``torch.operator``. A tensor filled with a complex
    number is a literal.

    Raises:
        UnsupportedNodeError: if an argument has no counterpart in the torch dialect.
    """
    if node.target in _FILLED and isinstance(value := node.args[_FILLED[node.target]], complex):
        example = build.example(node)
        if not all(isinstance(size, int) for size in example.shape):
            raise UnsupportedNodeError(
                f"a tensor of symbolic shape cannot be filled with {value}: expand torch.tensor({value}) instead"
            )
        return build.literal(torch.tensor(value, dtype=example.dtype).expand(example.shape))
    plan = plan_for(node.target)
    if plan.overload._schema.is_mutable:
        raise UnsupportedNodeError(
            "it writes to its arguments: make the graph functional first, with run_decompositions({})"
        )
    results = call_overload(plan, node.args, node.kwargs, build.result_types(node, plan.results), build)
    if results and (dtypes := node.meta.get("model_dtypes")):
        build.describe(results[0], "fx_importer.dtypes", dtypes)
    return results[0] if plan.results == 1 else results


def call_overload(
    plan: OverloadPlan, args: Sequence[Any], kwargs: Mapping[str, Any], types: Sequence[ir.Type], build: NodeBuilder
) -> list[ir.Value]:
    """Emit a call of an overload with results of these ``types``. Arguments are nodes, constants, or values of tensors.

    Raises:
        UnsupportedNodeError: if an argument has no counterpart in the torch dialect.
    """
    arguments = plan.bind(args, kwargs)
    if numbers := plan.complex_numbers(arguments):
        plan = sibling(plan.overload, numbers, "TensorType") or plan
    if scalars := plan.misplaced_scalars(arguments):
        plan, arguments = _with_scalars(plan, arguments, scalars, build)
    operands = [argument.convert(build, value) for argument, value in zip(plan.arguments, arguments, strict=True)]
    name = RENAMED.get(plan.overload, plan.name)
    if name == "aten.item" and build.example(arguments[0]).dtype is torch.bool:
        name = "aten.Bool.Tensor"
    return list(build.torch_op(name, types, operands).results)


def _with_scalars(
    plan: OverloadPlan, arguments: list[Any], scalars: tuple[int, ...], build: NodeBuilder
) -> tuple[OverloadPlan, list[Any]]:
    """Convert numbers passed where the schema has tensors (``x + 1`` is exported as ``add.Tensor``).

    An overload with scalar arguments is preferred, if the torch dialect has it. Otherwise they become rank-0
    tensors of the dtype to which the operation promotes them.
    """
    other = sibling(plan.overload, scalars, "NumberType")
    if plan.complex_numbers(arguments):
        other = None
    if other is not None and build.fx_importer.is_registered(f"torch.{other.name}"):
        return other, arguments
    tensors = [build.example(a) for a in arguments if isinstance(a, fx.Node)]
    tensors = [t for t in tensors if isinstance(t, torch.Tensor)]
    arguments = list(arguments)
    for index in scalars:
        number = arguments[index]
        example = build.example(number) if isinstance(number, fx.Node) else number
        dtype = torch.result_type(tensors[0], example) if tensors else torch.tensor(example).dtype
        arguments[index] = build.scalar_tensor(number, dtype)
    return plan, arguments
