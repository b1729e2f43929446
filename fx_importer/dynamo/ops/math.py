"""Registry of operators in MLIR's math dialect on tensors; other operators use linalg."""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload

from fx_importer.dynamo.ops.registry import OpsRegistry
from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings import Lowering, NoMatch, TargetEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.output_types import OutputType

_FUNCTIONS: dict[OpOverload, str] = {
    aten.abs.default: "absf",
    aten.atan.default: "atan",
    aten.ceil.default: "ceil",
    aten.cos.default: "cos",
    aten.erf.default: "erf",
    aten.exp.default: "exp",
    aten.expm1.default: "expm1",
    aten.floor.default: "floor",
    aten.log.default: "log",
    aten.log1p.default: "log1p",
    aten.log2.default: "log2",
    aten.round.default: "roundeven",
    aten.rsqrt.default: "rsqrt",
    aten.sin.default: "sin",
    aten.sqrt.default: "sqrt",
    aten.tanh.default: "tanh",
    aten.trunc.default: "trunc",
}


def _rule(operator: OpOverload, function: str) -> Lowering:
    def emit_math(emit: TargetEmitter, x: ir.Value) -> Any:
        if not emit.is_float(x) or x.type != emit.results[0]:
            raise NoMatch(f"math.{function} is of floating point")
        return emit.value(f"math.{function}", x.type, x)

    return Lowering((operator,), (OutputType.LINALG_ON_TENSORS,), emit_math)


ops_registry = OpsRegistry(
    "math",
    OutputType.LINALG_ON_TENSORS,
    {operator: _rule(operator, function) for operator, function in _FUNCTIONS.items()},
)
