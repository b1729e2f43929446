"""Backend that runs exported programs in eager PyTorch, the reference for other backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind

from fx_importer.calls.argument_values import with_declared_dtype
from fx_importer.calls.backend import Loaded, Value
from fx_importer.errors import UsageError
from fx_importer.fx_graph.programs import held_value
from fx_importer.manifest import Argument, Function, Manifest, Result
from fx_importer.mlir.bindings import ir

_NAMED = {
    OutputKind.BUFFER_MUTATION: "state",
    OutputKind.PARAMETER_MUTATION: "state",
    OutputKind.USER_INPUT_MUTATION: "input",
    OutputKind.GRADIENT_TO_PARAMETER: "gradient",
    OutputKind.GRADIENT_TO_USER_INPUT: "gradient",
}
"""Kinds of results in a manifest that have a name."""

Named = Mapping[tuple[str, str | int | None], Any]
"""Values by `key_of`: an input and a buffer may have the same name."""


def key_of(value: Argument | Result) -> tuple[str, str | int | None]:
    """Return the kind, and the leaf of an input, which ``input_names`` may rename, or the name of anything else."""
    return value.kind, value.leaf if value.kind == "input" else value.name


@dataclass(frozen=True)
class EagerBackend:
    """Eager PyTorch, with the exported programs of the functions of a module."""

    programs: Mapping[str, ExportedProgram]
    """By name of the function."""
    manifest: Manifest
    name: str = "eager"

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Return the program ``func_name`` as a function with the signature of the function of that name.

        ``module`` is unused. Raises `UsageError` if no program has that name.
        """
        if func_name not in self.programs:
            there = ", ".join(f"'{function}'" for function in self.programs)
            raise UsageError(f"there is no program '{func_name}': there is {there}")
        return _Function(self.programs[func_name], self.manifest.functions[func_name])


@dataclass(frozen=True)
class _Function:
    program: ExportedProgram
    function: Function

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        if len(arguments) != len(self.function.arguments):
            raise UsageError(f"the program takes {len(self.function.arguments)} arguments, but got {len(arguments)}")
        by_name = {
            key_of(argument): as_model_argument(argument, value)
            for argument, value in zip(self.function.arguments, arguments, strict=True)
        }
        with torch.no_grad():
            returned = fx.Interpreter(self.program.graph_module).run(*placeholder_values(self.program, by_name))
            results, values = results_of(self.program, self.function, returned, by_name)
            results = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in results)
            for argument in self.function.arguments:
                if argument.overwritten:
                    by_name[key_of(argument)].copy_(values[key_of(argument)])
        return results


def results_of(
    program: ExportedProgram, function: Function, returned: Sequence[Any], arguments: Named
) -> tuple[tuple[Any, ...], Named]:
    """Return the results of ``function`` among the values that ``program`` returned, and all named values.

    Mutated values that the program does not return are in ``arguments``. None, strings and tensors without elements may
    be missing from the results of the function.
    """
    outputs: list[Any] = []
    named = dict(arguments)
    inputs = _leaves_of_inputs(program)
    for spec, value in zip(program.graph_signature.output_specs, returned, strict=True):
        if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
            outputs.append(value)
        elif spec.kind in _NAMED:
            kind, name = _NAMED[spec.kind], spec.target or ""
            named[kind, inputs[name] if kind == "input" else name] = value
    named |= {("check", assumption): torch.tensor(True) for assumption in function.assumptions}  # else it has raised
    named |= _sizes(function, outputs)
    results = tuple(
        outputs[result.leaf] if result.kind == "output" and result.leaf is not None else named[key_of(result)]
        for result in function.results
    )
    return results, named


def _sizes(function: Function, outputs: Sequence[Any]) -> dict[tuple[str, str | int | None], Any]:
    """Return the sizes of padded outputs: a program with padding has them behind its ``outputs``."""
    names = [result.name for result in function.results if result.kind == "size"]
    counts = outputs[len(function.outputs.leaves) :]
    sizes: dict[tuple[str, str | int | None], Any] = {}
    sizes |= {("size", name): count for name, count in zip(names, counts, strict=False)}
    for leaf, axes in function.padded_axes.items() if not sizes else ():
        for axis, position in axes.items():
            sizes["size", function.results[position].name] = torch.tensor(outputs[leaf].shape[axis])
    return sizes


def placeholder_values(program: ExportedProgram, arguments: Named) -> list[Any]:
    """Return the values of the placeholders of ``program``.

    ``arguments`` has the inputs and the state. Other values are held by the program, or are inputs without elements.
    """
    nodes = program.graph.find_nodes(op="placeholder")
    leaves = _leaves_of_inputs(program)
    return [
        _placeholder_value(program, spec, node, arguments, leaves.get(spec.arg.name))
        for spec, node in zip(program.graph_signature.input_specs, nodes, strict=True)
    ]


def _leaves_of_inputs(program: ExportedProgram) -> dict[str, int]:
    """Return the indices of the user inputs among the leaves of the inputs, by placeholder."""
    specs = (spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT)
    return {spec.arg.name: leaf for leaf, spec in enumerate(specs)}


def _placeholder_value(
    program: ExportedProgram, spec: InputSpec, node: fx.Node, arguments: Named, leaf: int | None
) -> Any:
    """Return the value of a placeholder. Python scalars are constants of the export."""
    if spec.kind is InputKind.TOKEN:
        return torch.empty(0)
    if spec.kind is InputKind.USER_INPUT:
        if isinstance(spec.arg, ConstantArgument):
            return spec.arg.value
        if ("input", leaf) in arguments:
            return arguments["input", leaf]
        return torch.empty(node.meta["val"].shape, dtype=node.meta["val"].dtype)
    target = spec.target or ""
    for kind in ("state", "weight"):
        if (kind, target) in arguments:
            return arguments[kind, target]
    return held_value(program, spec)


def as_model_argument(argument: Argument, value: Any) -> Any:
    """Return ``value`` as the model takes it: Python scalars, and tensors in the declared dtype."""
    if not isinstance(value, torch.Tensor):
        return value
    if argument.type.shape is None:
        return value.item()
    return value if argument.passed_as is None else with_declared_dtype(value, argument)
