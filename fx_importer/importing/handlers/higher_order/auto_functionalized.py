"""Functional call of an operator that mutates its arguments: the new values follow its own results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from fx_importer.fx_graph.operators import OUT_TAG
from fx_importer.importing.handlers.schema_operators import call_overload
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.schema_arguments import plan_for
from fx_importer.importing.value_map import Results
from fx_importer.mlir.bindings import ir


def import_auto_functionalized(node: fx.Node, build: NodeBuilder) -> Results:
    """Import ``auto_functionalized(operator, **arguments)``.

    Return the operator's results, then the new value of each mutated argument: None for None, a list for a list.
    """
    overload = operator_of(node)
    kwargs = {name: value for name, value in node.kwargs.items() if name != "_only_clone_these_tensors"}
    examples = {name: _example(value, build) for name, value in kwargs.items() if name in written_by(overload)}
    own, new = call_functionally(node, overload, kwargs, examples, build)
    return [*own, *new.values()]


def operator_of(node: fx.Node) -> OpOverload:
    """Return the operator that ``node`` calls.

    Raises:
        UnsupportedNodeError: if it has no schema, or has ``out=`` arguments.
    """
    overload = node.args[0]
    if not isinstance(overload, OpOverload):
        raise UnsupportedNodeError(f"{overload} writes to what it captures: return new values from its graph instead")
    if OUT_TAG in overload.tags:
        raise UnsupportedNodeError(
            f"{overload} writes to arguments that it does not read: call the variant that returns its results"
        )
    return overload


def written_by(overload: OpOverload) -> list[str]:
    """Return the names of the arguments that an operator mutates."""
    return [
        argument.name for argument in overload._schema.arguments if argument.alias_info and argument.alias_info.is_write
    ]


def call_functionally(
    node: fx.Node, overload: OpOverload, kwargs: Mapping[str, Any], written: Mapping[str, Any], build: NodeBuilder
) -> tuple[list[ir.Value | None], dict[str, Any]]:
    """Emit a call of ``overload`` that returns its own results, then the new value of each mutated tensor.

    ``written`` has an example value of each mutated argument: a tensor, None, or a list of these. Return the
    operator's own results, which are ``[None]`` where it has none, and the new values by name.
    """
    plan = plan_for(overload)
    types = [build.types.of(example) for example in build.example(node)[: plan.results]]
    leaves = [leaf for name in written_by(overload) for leaf in _leaves(written[name])]
    results = call_overload(plan, [], kwargs, [*types, *map(build.types.of, leaves)], build)
    values = iter(results[plan.results :])
    new = {
        name: [None if part is None else next(values) for part in example]
        if isinstance(example := written[name], list)
        else None
        if example is None
        else next(values)
        for name in written_by(overload)
    }
    own: list[ir.Value | None] = [*results[: plan.results]]
    return own or [None], new


def _leaves(example: Any) -> list[torch.Tensor]:
    return [part for part in (example if isinstance(example, list) else [example]) if part is not None]


def _example(value: Any, build: NodeBuilder) -> Any:
    if isinstance(value, Sequence):
        return [_example(item, build) for item in value]
    return None if value is None else build.example(value)
