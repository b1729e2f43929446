"""Runs the programs themselves, in PyTorch: what the other backends are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind

from fx_importer.bindings import ir
from fx_importer.errors import UsageError
from fx_importer.execution.backend import Loaded, Value
from fx_importer.execution.calling import as_declared
from fx_importer.manifest import Argument, Function, Manifest

_WRITES = {
    OutputKind.BUFFER_MUTATION: "state",
    OutputKind.PARAMETER_MUTATION: "state",
    OutputKind.USER_INPUT_MUTATION: "input",
}


@dataclass(frozen=True)
class EagerBackend:
    """PyTorch, running exported programs as functions of a module that was made from them."""

    programs: Mapping[str, ExportedProgram]
    """By the names of their functions."""
    manifest: Manifest
    name: str = "eager"

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Return the program ``func_name``, taking and returning what the function of that name does.

        The module is not looked at. Raises `UsageError` if there is no such program.
        """
        if func_name not in self.programs:
            there = ", ".join(f"'{each}'" for each in self.programs)
            raise UsageError(f"there is no program '{func_name}': there is {there}")
        return _Function(self.programs[func_name], self.manifest.functions[func_name])


@dataclass(frozen=True)
class _Function:
    program: ExportedProgram
    function: Function

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        if len(arguments) != len(self.function.arguments):
            raise UsageError(f"the program takes {len(self.function.arguments)} arguments, but got {len(arguments)}")
        # An input and a buffer may have the same name.
        given: dict[tuple[str, str], Any] = {
            (each.kind, each.name): _as_the_model_takes(each, value)
            for each, value in zip(self.function.arguments, arguments, strict=True)
        }
        in_place = {(each.kind, each.name) for each in self.function.arguments if each.overwritten}
        with torch.no_grad():
            returned = fx.Interpreter(self.program.graph_module).run(*placeholder_values(self.program, given))
            results: list[Any] = []
            ending: Any = self.program.graph.output_node().args[0]
            specs = self.program.graph_signature.output_specs
            for spec, node, value in zip(specs, ending, returned, strict=True):
                written = (_WRITES.get(spec.kind, ""), spec.target or "")
                if written in in_place:
                    given[written].copy_(value)
                elif spec.kind is not OutputKind.TOKEN and isinstance(node, fx.Node | bool | int | float):
                    results.append(value.clone() if isinstance(value, torch.Tensor) else value)
        return tuple(results)


def placeholder_values(program: ExportedProgram, given: Mapping[tuple[str, str], Any]) -> list[Any]:
    """Return what goes to the placeholders of ``program``.

    ``given`` has the inputs and the state, by ``("input" or "state", name)``; what it lacks is what the program holds.
    """
    return [_placeholder(program, spec, given) for spec in program.graph_signature.input_specs]


def _placeholder(program: ExportedProgram, spec: InputSpec, given: Mapping[tuple[str, str], Any]) -> Any:
    """Return what goes to a placeholder. Python numbers were fixed by the export."""
    if spec.kind is InputKind.TOKEN:
        return torch.empty(0)
    if spec.kind is InputKind.USER_INPUT:
        return spec.arg.value if isinstance(spec.arg, ConstantArgument) else given["input", spec.arg.name]
    target = spec.target or ""
    if ("state", target) in given:
        return given["state", target]
    held = program.state_dict.get(target)
    return program.constants[target] if held is None else held


def _as_the_model_takes(argument: Argument, value: Any) -> Any:
    """Return what the function was passed: a number as one, and with the bits that it has in the model."""
    if not isinstance(value, torch.Tensor):
        return value
    if argument.type.shape is None:
        return value.item()
    return value if argument.passed_as is None else as_declared(value.long(), argument.type.dtype)
