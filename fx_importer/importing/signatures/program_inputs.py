"""Classification of program inputs into function arguments and constants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec

from fx_importer.errors import UnsupportedNode
from fx_importer.fx_graph.programs import held_value, is_empty, is_weight, storage_view_key
from fx_importer.importing.signatures.signature import HELD, ImportedArgument, ImportedConstant, example_of
from fx_importer.options import Mutation, Weights


@dataclass(frozen=True)
class SignaturePolicy:
    """Policy for the state and weights of a program in the signature of its function."""

    mutation: Mutation = Mutation.ERROR
    hooks_store: bool = False
    """Whether hooks store mutated buffers, under `Mutation.MUTABLE`; otherwise these are arguments."""
    state: Collection[str] = ()
    """Parameters and buffers that are state even if the program only reads them."""
    tensors_only: bool = False
    """Whether numbers fixed by the export and empty tensors are left out of arguments and results."""
    weights: Weights = Weights.INLINE
    input_names: Sequence[str] = ()
    output_names: Sequence[str] = ()
    """Names of inputs and outputs, instead of those of placeholders and of paths."""
    assertions: bool = True
    """Whether the function may hold assertions; otherwise it returns what it assumes."""


class ProgramInputs:
    """Classifier of the inputs of ``program``; ``mutated`` has the nodes of new values by placeholder."""

    def __init__(self, program: ExportedProgram, policy: SignaturePolicy, mutated: Mapping[str, fx.Node]):
        self.arguments: list[ImportedArgument] = []
        self.constants: list[ImportedConstant] = []
        self.unsupported: list[UnsupportedNode] = []
        self._program, self._policy, self._mutated = program, policy, mutated
        self._overwritten_by = mutated if policy.mutation is Mutation.MUTABLE else {}
        self._weight_positions: dict[tuple[Any, ...], int] = {}
        """Positions of weight arguments, by memory."""
        nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        leaf = 0
        for spec in program.graph_signature.input_specs:
            node = nodes[spec.arg.name]
            if spec.kind is InputKind.USER_INPUT:
                self._add_user_input(spec, node, leaf)
                leaf += 1
            elif spec.kind in HELD:
                self._add_held_tensor(spec, node)
            elif spec.kind is not InputKind.TOKEN:
                reason = f"an input of kind {spec.kind.name} cannot be imported yet"
                self.unsupported.append(UnsupportedNode(node.name, reason))

    def _add_user_input(self, spec: InputSpec, node: fx.Node, leaf: int) -> None:
        """Add an argument for a user input, unless it has no value at run time or the policy leaves it out."""
        if isinstance(spec.arg, ConstantArgument):
            if isinstance(spec.arg.value, (bool, int, float)) and not self._policy.tensors_only:
                self.arguments.append(ImportedArgument(node, node.name, constant=spec.arg, leaf=leaf))
            return
        unused = all(user.op == "output" for user in node.users)
        if not (self._policy.tensors_only and is_empty(example_of(node)) and unused):
            overwritten_by = self._overwritten_by.get(node.name)
            self.arguments.append(ImportedArgument(node, node.name, leaf=leaf, overwritten_by=overwritten_by))

    def _add_held_tensor(self, spec: InputSpec, node: fx.Node) -> None:
        """Add a parameter, buffer or tensor constant: as state, as a weight, or as a constant if it is used."""
        name, target, policy = node.name, spec.target or node.name, self._policy
        overwritten_by = self._overwritten_by.get(name)
        if (name in self._mutated or spec.target in policy.state) and not policy.hooks_store:
            self.arguments.append(ImportedArgument(node, target, kind="state", overwritten_by=overwritten_by))
            return
        if not node.users and name not in self._mutated:
            return
        tensor = held_value(self._program, spec)
        outside = policy.weights is not Weights.INLINE and is_weight(spec, tensor)
        if outside and policy.weights is Weights.ARGS and name not in self._mutated:
            self._add_weight(ImportedArgument(node, target, kind="weight"), storage_view_key(tensor))
        else:
            external = outside and policy.weights is Weights.EXTERNAL and overwritten_by is None
            self.constants.append(ImportedConstant(node, spec, tensor, overwritten_by, external))

    def _add_weight(self, new: ImportedArgument, memory: tuple[Any, ...]) -> None:
        """Add an argument, or another name for the argument with the same memory."""
        position = self._weight_positions.setdefault(memory, len(self.arguments))
        if position == len(self.arguments):
            self.arguments.append(new)
        else:
            first = self.arguments[position]
            self.arguments[position] = replace(first, also=(*first.also, new.node))
