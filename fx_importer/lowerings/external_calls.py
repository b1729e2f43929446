"""External calls: operators imported as calls of functions that the module only declares."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from fx_importer.importing import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.call_arguments import CallArguments
from fx_importer.importing.schema_arguments import plan_for
from fx_importer.lowerings.lowering_rules import External
from fx_importer.manifest import OperatorStub, Returned
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.declarations import OperatorStubs


def import_call_of(external: External, node: fx.Node, build: NodeBuilder) -> ir.Value | Sequence[ir.Value]:
    """Import a call of an operator as a call of the function of ``external``; return the results.

    Raises:
        UnsupportedNodeError: if it takes or returns values that are neither tensors nor scalars.
    """
    plan = plan_for(node.target)
    call = CallArguments.of(node, build)
    arguments = tuple(call.argument(argument) for argument in plan.bind(node.args, node.kwargs))
    examples = [] if plan.results == 0 else [build.example(node)] if plan.results == 1 else list(build.example(node))
    returned: list[tuple[Any, tuple[int, ...]]] = []
    for position, example in enumerate(examples):
        path = () if plan.results == 1 else (position,)
        if isinstance(example, list | tuple):
            returned += [(item, (*path, index)) for index, item in enumerate(example)]
        elif example is not None:
            returned.append((example, path))
    if wrong := [example for example, _ in returned if not isinstance(example, torch.Tensor)]:
        raise UnsupportedNodeError(
            f"the function {external.symbol} stands for it, which cannot return {type(wrong[0]).__name__}"
        )
    returns = tuple(Returned(call.tensor(value), path) for value, path in returned)
    stub = OperatorStub(str(node.target), arguments, tuple(call.takes), returns)
    names = (f"{external.symbol}{f'_{i}' if i else ''}" for i in itertools.count())
    with build.ambient():
        types = [build.types.of(value) for value, _ in returned]
        results = iter(OperatorStubs(build.fx_importer.module_op).call(stub, call.operands, types, names).results)
    return nested(results, examples, build.constant)


def nested(
    values: Iterator[ir.Value], examples: Sequence[Any], constant: Callable[[None], ir.Value] | None = None
) -> Any:
    """Return ``values`` nested as ``examples``: a list for each list, and a single result without one.

    ``constant`` makes the value of a result that is None, such as a gradient that the call does not ask for.
    """

    def one(example: Any) -> Any:
        if isinstance(example, list | tuple):
            return [next(values) for _ in example]
        return constant(None) if example is None and constant is not None else next(values)

    results = [one(example) for example in examples]
    return results[0] if len(results) == 1 else results
