"""The arguments of a call of a function that the module only declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.pytrees import value_type
from fx_importer.importing.types import DTYPE_CODES, LAYOUT_CODES, MEMORY_FORMAT_CODES
from fx_importer.manifest import OperatorArgument, Passed, ValueType
from fx_importer.mlir.bindings import ir

_CODES: Mapping[Any, int] = {**DTYPE_CODES, **LAYOUT_CODES, **MEMORY_FORMAT_CODES}
_SCALARS = {
    "!torch.int": ("int", torch.int64),
    "!torch.float": ("float", torch.float64),
    "!torch.bool": ("bool", torch.bool),
}


@dataclass
class CallArguments:
    """The arguments of a call, and the operands and types of the function."""

    build: NodeBuilder
    dtypes: Iterator[str] | None
    """Dtypes of the tensors in the model, in order, where legalization has changed those of the graph."""
    operands: list[ir.Value] = field(default_factory=list[ir.Value])
    takes: list[ValueType] = field(default_factory=list[ValueType])

    @classmethod
    def of(cls, node: fx.Node, build: NodeBuilder) -> CallArguments:
        """Return the empty arguments of the call that ``node`` is."""
        dtypes = node.meta.get("model_dtypes")
        return cls(build, iter([str(dtype).removeprefix("torch.") for dtype in dtypes]) if dtypes else None)

    def argument(self, argument_value: Any) -> OperatorArgument:
        """Return the record of an argument of the operator, and add the operands of the function for it."""
        if isinstance(argument_value, list | tuple):
            return tuple(self.argument(argument) for argument in argument_value)
        if isinstance(argument_value, fx.Node):
            example = self.build.example(argument_value)
            if isinstance(example, list | tuple):
                binding = self.build.environment.binding(argument_value)
                if not isinstance(binding, tuple):
                    raise UnsupportedNodeError(
                        "a list of tensors that another operator made goes into it: take it apart before"
                    )
                return tuple(self._passed(value, part) for value, part in zip(binding, example, strict=True))
            return self._passed(self.build.value(argument_value), example)
        if isinstance(argument_value, torch.dtype | torch.layout | torch.memory_format):
            return _CODES[argument_value]
        return str(argument_value) if isinstance(argument_value, torch.device) else argument_value

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
