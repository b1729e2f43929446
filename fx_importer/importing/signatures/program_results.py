"""Results of a program, and the state that it mutates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, SymBoolArgument, SymFloatArgument, SymIntArgument

from fx_importer import manifest
from fx_importer.errors import UnsupportedNode
from fx_importer.fx_graph.programs import is_empty
from fx_importer.importing.pytrees import tree_of, value_type
from fx_importer.importing.signatures.signature import HELD, example_of, passed_as

RESULT_KINDS = {
    OutputKind.USER_OUTPUT: "output",
    OutputKind.LOSS_OUTPUT: "output",
    OutputKind.BUFFER_MUTATION: "state",
    OutputKind.PARAMETER_MUTATION: "state",
    OutputKind.USER_INPUT_MUTATION: "input",
    OutputKind.GRADIENT_TO_PARAMETER: "gradient",
    OutputKind.GRADIENT_TO_USER_INPUT: "gradient",
}
"""Output kinds and their names in the manifest."""

_NUMBERS: dict[type, bool | int | float] = {SymBoolArgument: True, SymIntArgument: 1, SymFloatArgument: 1.0}
"""Examples of the numbers that a program returns, by the kind of output in its signature."""

Result = tuple[fx.Node | int | float | bool, manifest.Result]
"""A returned value and its record."""


def results_of(program: ExportedProgram, unsupported: list[UnsupportedNode]) -> Iterator[Result]:
    """Yield the results that have a value at run time. Outputs of other kinds are added to ``unsupported``."""
    outputs = tree_of(program.call_spec.out_spec, "output").leaves
    inputs = [s.arg.name for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    returned: Any = program.graph.output_node().args[0]
    leaf = -1
    for spec, value in zip(program.graph_signature.output_specs, returned, strict=True):
        if spec.kind is OutputKind.TOKEN:
            continue
        kind: Any = RESULT_KINDS.get(spec.kind)
        if kind is None:
            reason = f"an output of kind {spec.kind.name} cannot be imported yet"
            unsupported.append(UnsupportedNode(spec.arg.name, reason))
            continue
        name, position = spec.target or spec.arg.name, None
        if kind == "output":
            leaf += 1
            # A joint graph may have fewer outputs than the model. It records the loss, but not its position.
            name, position = outputs[leaf].path if leaf < len(outputs) else spec.arg.name, leaf
        elif kind == "input":
            position = inputs.index(name)
        if isinstance(value, fx.Node):
            number = _NUMBERS.get(type(spec.arg))  # a tensor of rank 0 in output types that have tensors only
            example = example_of(value) if number is None else number
            record = manifest.Result(kind, name, value_type(example), position, passed_as(value))
            yield value, record
        elif isinstance(value, (bool, int, float)):
            yield value, manifest.Result(kind, name, value_type(value), position)


def is_known(value: fx.Node | int | float | bool) -> bool:
    """Return whether the manifest holds the value of a result: a fixed number or an empty tensor."""
    return not isinstance(value, fx.Node) or is_empty(example_of(value))


def mutated_inputs(program: ExportedProgram) -> dict[str, fx.Node]:
    """Return the nodes of the new values of everything that the program mutates, by placeholder."""
    placeholder_of = {spec.target: spec.arg.name for spec in program.graph_signature.input_specs if spec.target}
    results: Any = program.graph.output_node().args[0]
    mutated: dict[str, fx.Node] = {}
    for spec, node in zip(program.graph_signature.output_specs, results, strict=True):
        if spec.target is not None and RESULT_KINDS.get(spec.kind) == "state":
            mutated[placeholder_of[spec.target]] = node
        elif spec.kind is OutputKind.USER_INPUT_MUTATION and spec.target is not None:
            mutated[spec.target] = node
    return mutated


def described_input(program: ExportedProgram, name: str) -> tuple[str, str]:
    """Return the user's name and the kind of the placeholder ``name``, for an error."""
    spec = next(spec for spec in program.graph_signature.input_specs if spec.arg.name == name)
    if spec.kind in HELD:
        return spec.target or name, f"the {HELD[spec.kind]} '{spec.target}'"
    return name, "an input"
