"""Extraction of a part of an exported program as a program: values from the rest become its inputs."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from fx_importer.fx_graph.programs import held_value
from fx_importer.verification.eager_reference import copied

Values = Mapping[str, torch.Tensor]
"""Tensor values by node name."""
ValuesOf = Callable[[Collection[str]], Values]
"""Computes the values that the nodes with these names have in the whole program."""


@dataclasses.dataclass(frozen=True)
class Subprogram:
    """A subset of a program's nodes."""

    program: ExportedProgram
    nodes: tuple[str, ...]
    """The nodes that compute, in order."""
    outputs: tuple[str, ...]
    """The nodes whose values are returned."""

    def extracted(self, values_of: ValuesOf) -> ExportedProgram:
        """Return the program of these nodes."""
        return _Extraction(self.program, self.nodes, self.outputs).program(values_of)


def whole(program: ExportedProgram) -> Subprogram:
    """Return all nodes of ``program`` as a part, which returns the program's outputs and all unused values."""
    return part(program, [node.name for node in program.graph.nodes if node.op == "call_function"])


def part(program: ExportedProgram, chosen: Collection[str]) -> Subprogram:
    """Return the nodes ``chosen``, and those whose values cannot be inputs: symbolic sizes and tuples.

    The part returns the values without a user in it, and those that the whole program returns.
    """
    by_name = {node.name: node for node in program.graph.nodes}
    wanted = set(chosen)
    pending = list(chosen)
    while pending:
        node = by_name[pending.pop()]
        more = [operand for operand in node.all_input_nodes if operand.op == "call_function" and not is_tensor(operand)]
        picks = [user for user in node.users if user.target is operator.getitem]
        if isinstance(node.meta.get("val"), list | tuple) and picks and not any(pick.name in wanted for pick in picks):
            more.append(picks[0])
        pending += [node.name for node in more if node.name not in wanted]
        wanted.update(node.name for node in more)
    nodes = [node for node in program.graph.nodes if node.name in wanted and node.op == "call_function"]
    returned = set(program.graph.output_node().all_input_nodes)
    outputs = [
        node.name
        for node in nodes
        if is_tensor(node) and (node in returned or not any(user.name in wanted for user in node.users))
    ]
    return Subprogram(program, tuple(node.name for node in nodes), tuple(outputs))


def is_tensor(node: fx.Node) -> bool:
    """Return whether the value of ``node`` can be replaced by a tensor input."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def example_of(node: fx.Node) -> torch.Tensor:
    """Return zeros with the shape and dtype of ``node``, with its symbols at their values during export."""
    value = node.meta["val"]
    return torch.zeros([_hint(size) for size in value.shape], dtype=value.dtype)


def _hint(size: Any) -> int:
    if isinstance(size, int):
        return size
    hint = size.node.hint
    return 2 if hint is None else int(hint)  # unbacked symbol: an arbitrary size


class _Extraction:
    """Copies part of a graph into a new graph."""

    def __init__(self, program: ExportedProgram, nodes: Collection[str], outputs: Sequence[str]):
        self.original = program
        self.kept, self.outputs = set(nodes), outputs
        self.graph = fx.Graph()
        self.copies: dict[fx.Node, fx.Node] = {}

    def program(self, values_of: ValuesOf) -> ExportedProgram:
        original = self.original
        nodes = {node.name: node for node in original.graph.nodes}
        read = {operand for name in self.kept for operand in nodes[name].all_input_nodes}
        results, result_specs = self._results()
        written = {spec.target for spec in result_specs if spec.target}
        inputs: list[InputSpec] = []
        for spec in original.graph_signature.input_specs:
            node = nodes.get(spec.arg.name)
            if node is not None and (node in read or node in results or {spec.target, spec.arg.name} & written):
                self._copy(node)
                inputs.append(spec)
        cut = [node for node in original.graph.nodes if node in read and self._is_cut(node)]
        for node in cut:
            self._placeholder(node)
            inputs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None))
        for node in original.graph.nodes:
            if node.name in self.kept or (node.op == "get_attr" and node in read):
                self._copy(node)
        self.graph.output(tuple(self.copies[node] for node in results))
        return self._assembled(inputs, result_specs, cut, values_of)

    def _is_cut(self, node: fx.Node) -> bool:
        return node.op == "call_function" and node.name not in self.kept

    def _copy(self, node: fx.Node) -> None:
        new = self.graph.node_copy(node, self.copies.__getitem__)
        new.name = node.name  # copying renames `input`; signatures refer to names
        self.copies[node] = new

    def _placeholder(self, node: fx.Node) -> None:
        new = self.graph.placeholder(node.name)
        new.name = new.target = node.name
        new.meta = {"val": node.meta["val"]}
        self.copies[node] = new

    def _results(self) -> tuple[list[fx.Node], list[OutputSpec]]:
        """Return the nodes to return, mutated state first, as in the original."""
        returned = self.original.graph.output_node().args[0]
        assert isinstance(returned, list | tuple)
        wanted = dict.fromkeys(self.outputs)
        nodes: list[fx.Node] = []
        specs: list[OutputSpec] = []
        for spec, node in zip(self.original.graph_signature.output_specs, returned, strict=True):
            if isinstance(node, fx.Node) and node.name in wanted and spec.kind is not OutputKind.USER_OUTPUT:
                nodes.append(node)
                specs.append(spec)
                del wanted[node.name]
        for node in self.original.graph.nodes:
            if node.name in wanted:
                nodes.append(node)
                specs.append(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None))
        return nodes, specs

    def _assembled(
        self, inputs: list[InputSpec], outputs: list[OutputSpec], cut: Sequence[fx.Node], values_of: ValuesOf
    ) -> ExportedProgram:
        original = self.original
        users = [spec for spec in inputs if spec.kind is InputKind.USER_INPUT]
        leaves = example_leaves(original)
        values = values_of([node.name for node in cut])
        examples = tuple(values[node.arg.name] if node.arg.name in values else leaves[node.arg.name] for node in users)
        returned = sum(spec.kind is OutputKind.USER_OUTPUT for spec in outputs)
        signature = ModuleCallSignature(
            inputs=[spec.arg for spec in users],
            outputs=[spec.arg for spec in outputs if spec.kind is OutputKind.USER_OUTPUT],
            in_spec=pytree.tree_structure((examples, {})),
            out_spec=pytree.tree_structure(tuple(range(returned))),
            forward_arg_names=[spec.arg.name for spec in users],
        )
        targets = {spec.target for spec in inputs}
        root = fx.GraphModule(original.graph_module, self.graph)
        return ExportedProgram(
            root=root,
            graph=root.graph,
            graph_signature=ExportGraphSignature(inputs, outputs),
            state_dict={name: value for name, value in original.state_dict.items() if name in targets},
            range_constraints=original.range_constraints,
            module_call_graph=[ModuleCallEntry("", signature)],
            example_inputs=(examples, {}),
            constants={name: value for name, value in original.constants.items() if name in targets},
            verifiers=original.verifiers,
        )


def example_leaves(program: ExportedProgram) -> dict[str, Any]:
    """Return the example inputs of ``program`` by placeholder name; zeros if it has none."""
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    if program.example_inputs is not None:
        leaves = pytree.tree_leaves(program.example_inputs)
        if len(leaves) == len(specs):
            return {spec.arg.name: leaf for spec, leaf in zip(specs, leaves, strict=True)}
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    return {
        spec.arg.name: spec.arg.value if isinstance(spec.arg, ConstantArgument) else example_of(nodes[spec.arg.name])
        for spec in specs
    }


class _Watching(fx.Interpreter):
    def __init__(self, program: ExportedProgram, names: Collection[str]):
        super().__init__(program.graph_module)
        self.names, self.values = set(names), dict[str, torch.Tensor]()

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self.names:
            self.values[n.name] = value.detach().clone()
        return value


def eager_values(program: ExportedProgram, names: Collection[str]) -> Values:
    """Return the values of the nodes ``names`` in eager PyTorch, for the example inputs of ``program``."""
    if not names:
        return {}
    examples = example_leaves(program)
    arguments = [
        examples[spec.arg.name] if spec.kind is InputKind.USER_INPUT else held_value(program, spec)
        for spec in program.graph_signature.input_specs
    ]
    watching = _Watching(program, names)
    with torch.no_grad():
        watching.run(*copied(arguments))
    return watching.values


def blank_values(program: ExportedProgram, names: Collection[str]) -> Values:
    """Return zeros as the values of the nodes ``names``: failures of a lowering do not depend on values."""
    wanted = set(names)
    return {node.name: example_of(node) for node in program.graph.nodes if node.name in wanted}
