"""A program's graph signature as a function's: what is an argument, what is a constant, what is a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind

from fx_importer.errors import Refusal, UnsupportedProgramError
from fx_importer.options import Mutation


@dataclass(frozen=True)
class Argument:
    """An argument of the function."""

    node: fx.Node
    name: str
    constant: ConstantArgument | None = None
    """Set where the program was exported for one value of this (Python) argument."""
    overwritten_by: fx.Node | None = None
    """The node whose value is written into this argument: it is then a ``!torch.tensor``."""


@dataclass(frozen=True)
class Constant:
    """A parameter, buffer or tensor constant, and its value."""

    node: fx.Node
    spec: InputSpec
    tensor: torch.Tensor
    stored: fx.Node | None = None
    """The node whose value the hooks are to store as the new value of this buffer."""


@dataclass(frozen=True)
class Signature:
    """What a program takes, holds and returns."""

    arguments: tuple[Argument, ...]
    constants: tuple[Constant, ...]
    results: tuple[fx.Node | int | float | bool, ...]
    """New state first, in the order of the graph signature, then the user's results. None and strings have no value at
    run time and are left out."""


def read_signature(program: ExportedProgram, mutation: Mutation, hooks_store: bool) -> Signature:
    """Sort the inputs and outputs of ``program`` under a mutation policy.

    ``hooks_store`` says that hooks store mutated buffers (under `Mutation.MUTABLE`); otherwise these are arguments.

    Raises:
        UnsupportedProgramError: listing all that is mutated, under `Mutation.ERROR`; or all inputs and outputs of kinds
            that cannot be imported.
    """
    mutated = _mutated(program)
    if mutated and mutation is Mutation.ERROR:
        raise UnsupportedProgramError(
            "the program mutates state, and a frozen import would lose that. Pass mutation='functional' to take the "
            "state as arguments and return the new state first, or mutation='mutable' "
            "(experimental_support_mutation=True) to overwrite it in place. Mutated:",
            [Refusal(name, _describe(program, name)) for name in mutated],
        )
    writes = mutated if mutation is Mutation.MUTABLE else {}
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    arguments: list[Argument] = []
    constants: list[Constant] = []
    refusals: list[Refusal] = []
    for spec in program.graph_signature.input_specs:
        name = spec.arg.name
        node = nodes[name]
        if spec.kind is InputKind.USER_INPUT:
            if isinstance(spec.arg, ConstantArgument):
                if isinstance(spec.arg.value, (bool, int, float)):
                    arguments.append(Argument(node, name, constant=spec.arg))
            else:
                arguments.append(Argument(node, name, overwritten_by=writes.get(name)))
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            if name in mutated and not hooks_store:
                arguments.append(Argument(node, spec.target or name, overwritten_by=writes.get(name)))
            elif node.users or name in mutated:
                constants.append(Constant(node, spec, tensor_of(program, spec), writes.get(name)))
        else:
            refusals.append(Refusal(name, f"an input of kind {spec.kind.name} cannot be imported yet"))
    results: list[fx.Node | int | float | bool] = []
    for spec, value in zip(program.graph_signature.output_specs, program.graph.output_node().args[0], strict=True):  # pyright: ignore
        if spec.kind in _STATE and mutation is Mutation.MUTABLE:
            continue
        if spec.kind is OutputKind.TOKEN:
            refusals.append(Refusal(spec.arg.name, "an effect token cannot be imported yet"))
        elif isinstance(value, (fx.Node, bool, int, float)):
            results.append(value)
    if refusals:
        raise UnsupportedProgramError("the program's signature cannot be imported:", refusals)
    return Signature(tuple(arguments), tuple(constants), tuple(results))


_STATE = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def _mutated(program: ExportedProgram) -> dict[str, fx.Node]:
    """Return placeholder name → the node of its new value, for all that the program mutates."""
    placeholder_of = {spec.target: spec.arg.name for spec in program.graph_signature.input_specs if spec.target}
    results = program.graph.output_node().args[0]
    mutated = {}
    for spec, node in zip(program.graph_signature.output_specs, results, strict=True):  # pyright: ignore
        if spec.kind is OutputKind.BUFFER_MUTATION:
            mutated[placeholder_of[spec.target]] = node
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            mutated[spec.target] = node
    return mutated


def _describe(program: ExportedProgram, name: str) -> str:
    target = program.graph_signature.inputs_to_buffers.get(name)
    return f"the buffer '{target}'" if target else "an input"


def tensor_of(program: ExportedProgram, spec: InputSpec) -> torch.Tensor:
    """Return the value of a parameter, buffer (persistent or not) or tensor constant."""
    target = spec.target
    assert target is not None
    found: Any = program.state_dict.get(target)
    if found is None:
        found = program.constants[target]
    assert isinstance(found, torch.Tensor)
    return found
