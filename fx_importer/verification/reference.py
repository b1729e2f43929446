"""What everything is held against: the program as it was exported, run by PyTorch node by node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from fx_importer.execution import Value
from fx_importer.execution.eager import placeholder_values
from fx_importer.manifest import Function

_NAMED = {
    OutputKind.BUFFER_MUTATION: "state",
    OutputKind.PARAMETER_MUTATION: "state",
    OutputKind.USER_INPUT_MUTATION: "input",
    OutputKind.GRADIENT_TO_PARAMETER: "gradient",
    OutputKind.GRADIENT_TO_USER_INPUT: "gradient",
}

Observer = Callable[[fx.Node, Any], None]
"""Sees each node and its value, before anything can be written to it."""


@dataclass(frozen=True)
class Reference:
    """An exported program, taking and returning what the function that was made from it does.

    The program may write to its state and inputs; these are copies, unless the function overwrites them too.
    """

    program: ExportedProgram
    function: Function
    observe: Observer | None = None

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        given: dict[tuple[str, str], Any] = {
            (each.kind, each.name): value if each.overwritten else _copy(value)
            for each, value in zip(self.function.arguments, arguments, strict=True)
        }
        with torch.no_grad():
            interpreter = _Interpreter(self.program.graph_module, self.observe)
            returned = interpreter.run(*placeholder_values(self.program, given))
        leaves: list[Any] = []
        for spec, value in zip(self.program.graph_signature.output_specs, returned, strict=True):
            if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
                leaves.append(value)
            elif spec.kind in _NAMED:
                given[_NAMED[spec.kind], spec.target or ""] = value
        return tuple(
            _copy(leaves[each.leaf] if each.kind == "output" and each.leaf is not None else given[each.kind, each.name])
            for each in self.function.results
        )


class _Interpreter(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, observe: Observer | None):
        super().__init__(module)
        self._observe = observe

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if self._observe is not None:
            self._observe(n, value)
        return value


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
