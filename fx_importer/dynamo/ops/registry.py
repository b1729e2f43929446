"""Registry of operator lowerings: a mapping from operators to functions that users can extend."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from torch import fx
from torch._ops import OpOverload, OpOverloadPacket

from fx_importer.errors import UsageError
from fx_importer.fx_graph.operators import operator_named
from fx_importer.lowerings.lowering_rules import Lowering, NodeRule
from fx_importer.lowerings.symbol_table import SymbolTable
from fx_importer.mlir.bindings import torch_op_names
from fx_importer.output_types import OutputType
from fx_importer.targets import target_for

NodeEmitter = Callable[[fx.Node, SymbolTable], Any]
"""Emits MLIR for a node at the current insertion point, and returns its value or operation."""


@dataclass(frozen=True)
class BuiltIn:
    """The lowering of an operator by passes and decompositions of the package."""

    operator: OpOverload
    into: OutputType

    def __call__(self, node: fx.Node, symbol_table: SymbolTable) -> Any:
        """Emit the operator in the torch dialect, for the passes to lower."""
        return symbol_table.built_in(node)


class OpsRegistry(MutableMapping[Any, NodeEmitter]):
    """The lowerings of operators into an output type.

    There are built-in entries for all operators of the torch dialect and all that have a decomposition; whether a given
    call is supported is only known when it is lowered. Keys are operators or names, ``"add.Tensor"``,
    ``"aten.add.Tensor"``, or names of Buddy Compiler's registries, ``"AddOp"``; a name without an overload stands for
    all overloads.
    """

    def __init__(self, name: str, into: OutputType, rules: dict[OpOverload, Lowering] | None = None):
        self.name = name
        self.into = into
        self._own = rules or {}
        """Lowerings of the registry itself, applied before the passes."""
        self._given: dict[OpOverload, NodeEmitter] = {}

    @classmethod
    def of(cls, functions: Mapping[Any, NodeEmitter]) -> OpsRegistry:
        """Return a registry with the entries of ``functions``, for the output type of the built-in ones among them."""
        into = next(
            (function.into for function in functions.values() if isinstance(function, BuiltIn)), OutputType.TOSA
        )
        registry = cls("primary", into)
        for key, rule in functions.items():
            if not isinstance(rule, BuiltIn):
                registry[key] = rule
        return registry

    def __setitem__(self, key: Any, rule: NodeEmitter) -> None:
        """Add a function of a node and the symbol table. Raises `UsageError` if either is invalid."""
        if not callable(rule):
            raise UsageError(f"{self.name}.ops_registry: the lowering of {key} must be a function, not {rule!r}")
        self._given |= dict.fromkeys(_overloads(self.name, key), rule)

    def __getitem__(self, key: Any) -> NodeEmitter:
        try:
            operator = _overloads(self.name, key)[0]
        except UsageError:
            raise KeyError(key) from None
        if operator in self._given:
            return self._given[operator]
        if not (operator in self._given or operator in self._own or operator in _known(self.into)):
            raise KeyError(key)
        return BuiltIn(operator, self.into)

    def __delitem__(self, key: Any) -> None:
        """Remove an added lowering; built-in entries stay."""
        for operator in _overloads(self.name, key):
            del self._given[operator]

    def __iter__(self) -> Iterator[OpOverload]:
        yield from self._given
        yield from (name for name in _known(self.into) if name not in self._given)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def restore(self) -> None:
        """Remove all added lowerings."""
        self._given.clear()

    def given(self) -> list[Lowering]:
        """Return the added lowerings."""
        return [NodeRule((operator,), (self.into,), rule) for operator, rule in self._given.items()]

    def rules(self) -> list[Lowering]:
        """Return the lowerings applied before the passes: the added ones, and the registry's own."""
        return [*self.given(), *(rule for operator, rule in self._own.items() if operator not in self._given)]


def _overloads(name: str, key: Any) -> list[OpOverload]:
    target = key
    if isinstance(key, str):
        target = operator_named(key)
        target = operator_named(f"aten.{key}") if target is None else target
        target = _of_buddy(key) if target is None else target
    if isinstance(target, OpOverload):
        return [target]
    if isinstance(target, OpOverloadPacket):
        return [getattr(target, overload) for overload in target.overloads()]
    raise UsageError(
        f"{name}.ops_registry: {key!r} is not an operator, such as torch.ops.aten.add.Tensor or 'add.Tensor'"
    )


_BUDDY = {
    "AddMMOp": "addmm",
    "BatchMatmulOp": "bmm",
    "MatmulOp": "mm",
    "SumDimOp": "sum.dim_IntList",
    "MeanOp": "mean.dim",
    "ToCopyOp": "_to_copy",
    "SoftmaxOp": "_softmax",
    "Conv2dOp": "convolution",
    "LessThanOp": "lt",
    "GreaterThanOp": "gt",
    "GreaterEqualOp": "ge",
    "LessEqualOp": "le",
    "EqualOp": "eq",
    "NotEqualOp": "ne",
    "ArgMaxOp": "argmax",
    "ArgMinOp": "argmin",
    "RandIntLowOp": "randint.low",
    "IotaOp": "prims.iota",
    "ConvertElementTypeOp": "prims.convert_element_type",
    "ScaledDotProductFlashAttentionForCpuOp": "_scaled_dot_product_flash_attention_for_cpu",
}
"""Classes of Buddy Compiler's operations that are not named as the operator of torch in camel case."""


def _of_buddy(name: str) -> OpOverload | OpOverloadPacket | None:
    """Return the operator of a name in Buddy Compiler's registries: ``AddOp``, ``MaxPool2dWithIndicesOp``."""
    if not name.endswith("Op"):
        return None
    words = re.findall(r"[A-Z]+[a-z0-9]*", name.removesuffix("Op"))
    operator = _BUDDY.get(name, "_".join(words).lower())
    target = operator_named(operator)
    return operator_named(f"aten.{operator}") if target is None else target


_KNOWN: dict[OutputType, dict[OpOverload, None]] = {}


def _known(into: OutputType) -> dict[OpOverload, None]:
    """Return the operators with a decomposition for an output type, or in the torch dialect."""
    if into not in _KNOWN:
        operators: dict[OpOverload, None] = dict.fromkeys(target_for(into).decompositions)
        for name in torch_op_names():
            operator = operator_named(name) if name.startswith(("torch.aten.", "torch.prims.")) else None
            if isinstance(operator, OpOverloadPacket):
                operator = getattr(operator, "default", None)
            if isinstance(operator, OpOverload):
                operators[operator] = None
        _KNOWN[into] = operators
    return _KNOWN[into]
