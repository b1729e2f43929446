"""External calls: operators imported as calls of functions that the module only declares."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from fx_importer.importing import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.pytrees import value_type
from fx_importer.importing.schema_arguments import plan_for
from fx_importer.importing.types import DTYPE_CODES, LAYOUT_CODES, MEMORY_FORMAT_CODES
from fx_importer.lowerings.lowering_rules import External
from fx_importer.manifest import OperatorArgument, OperatorStub, Passed, Returned, ValueType
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.declarations import OperatorStubs

_CODES: Mapping[Any, int] = {**DTYPE_CODES, **LAYOUT_CODES, **MEMORY_FORMAT_CODES}
_SCALARS = {
    "!torch.int": ("int", torch.int64),
    "!torch.float": ("float", torch.float64),
    "!torch.bool": ("bool", torch.bool),
}


def import_call_of(external: External, node: fx.Node, build: NodeBuilder) -> ir.Value | Sequence[ir.Value]:
    """Import a call of an operator as a call of the function of ``external``; return the results.

    Raises:
        UnsupportedNodeError: if it takes or returns values that are neither tensors nor scalars.
    """
    plan = plan_for(node.target)
    dtypes = node.meta.get("model_dtypes")
    call = _CallArguments(build, iter([str(each).removeprefix("torch.") for each in dtypes]) if dtypes else None)
    arguments = tuple(call.argument(each) for each in plan.bind(node.args, node.kwargs))
    examples = [] if plan.results == 0 else [build.example(node)] if plan.results == 1 else list(build.example(node))
    returned: list[tuple[Any, tuple[int, ...]]] = []
    for position, example in enumerate(examples):
        path = () if plan.results == 1 else (position,)
        if isinstance(example, list | tuple):
            returned += [(each, (*path, index)) for index, each in enumerate(example)]
        elif example is not None:
            returned.append((example, path))
    if wrong := [example for example, _ in returned if not isinstance(example, torch.Tensor)]:
        raise UnsupportedNodeError(
            f"the function {external.symbol} stands for it, which cannot return {type(wrong[0]).__name__}"
        )
    returns = tuple(Returned(call.tensor(each), path) for each, path in returned)
    stub = OperatorStub(str(node.target), arguments, tuple(call.takes), returns)
    names = (f"{external.symbol}{f'_{i}' if i else ''}" for i in itertools.count())
    with build.ambient():
        types = [build.types.of(each) for each, _ in returned]
        found = iter(OperatorStubs(build.fx_importer.module_op).call(stub, call.operands, types, names).results)
    return nested(found, examples, build.constant)


@dataclass
class _CallArguments:
    """The arguments of a call, and the operands and types of the function."""

    build: NodeBuilder
    dtypes: Iterator[str] | None
    """Dtypes of the tensors in the model, in order, where legalization has changed those of the graph."""
    operands: list[ir.Value] = field(default_factory=list[ir.Value])
    takes: list[ValueType] = field(default_factory=list[ValueType])

    def argument(self, given: Any) -> OperatorArgument:
        """Return the record of an argument of the operator, and add the operands of the function for it."""
        if isinstance(given, list | tuple):
            return tuple(self.argument(each) for each in given)
        if isinstance(given, fx.Node):
            example = self.build.example(given)
            if isinstance(example, list | tuple):
                binding = self.build.environment.binding(given)
                if not isinstance(binding, tuple):
                    raise UnsupportedNodeError(
                        "a list of tensors that another operator made goes into it: take it apart before"
                    )
                return tuple(self._passed(value, each) for value, each in zip(binding, example, strict=True))
            return self._passed(self.build.value(given), example)
        if isinstance(given, torch.dtype | torch.layout | torch.memory_format):
            return _CODES[given]
        return str(given) if isinstance(given, torch.device) else given

    def _passed(self, value: Any, example: Any) -> Passed:
        build = self.build
        kind = str(value.type)
        if kind in _SCALARS:
            name, dtype = _SCALARS[kind]
            self.takes.append(ValueType(name))
            made = [build.types.tensor(dtype, ())]
            value = build.op("torch.prim.NumToTensor.Scalar", made, [value]).result
        else:
            self.takes.append(self.tensor(example))
        self.operands.append(value)
        return Passed(len(self.operands) - 1)

    def tensor(self, example: torch.Tensor) -> ValueType:
        """Return the type of the next tensor, ``example`` in the graph, in the model; ``"?"`` is a dynamic size."""
        kind = value_type(example)
        shape = tuple("?" if isinstance(size, str) else size for size in kind.shape or ())
        if self.dtypes is None:
            return ValueType(kind.dtype, shape)
        dtype = next(self.dtypes)
        paired = dtype.startswith("complex") and not kind.dtype.startswith("complex")
        return ValueType(dtype, shape[:-1] if paired else shape)


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

    found = [one(each) for each in examples]
    return found[0] if len(found) == 1 else found
