"""A part of an exported program as a program of its own: what comes in from the rest is its inputs."""

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
"""Tensors by the names of the nodes that they are values of."""
ValuesOf = Callable[[Collection[str]], Values]
"""Gives the values that the nodes of these names have in the whole program."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Some nodes of a program."""

    program: ExportedProgram
    nodes: tuple[str, ...]
    """Those that compute, in order."""
    outputs: tuple[str, ...]
    """Those whose values are returned."""

    def extracted(self, values_of: ValuesOf) -> ExportedProgram:
        """Return the program of these nodes."""
        return _Extraction(self.program, self.nodes, self.outputs).program(values_of)


def whole(program: ExportedProgram) -> Part:
    """Return all nodes of ``program`` as a part; what it returns, and what nothing reads, is returned."""
    return part(program, [node.name for node in program.graph.nodes if node.op == "call_function"])


def part(program: ExportedProgram, chosen: Collection[str]) -> Part:
    """Return the nodes ``chosen``, and those whose values cannot be inputs: sizes and several results in one.

    The program returns what is left to be read by nobody, and what the whole returns.
    """
    by_name = {node.name: node for node in program.graph.nodes}
    wanted = set(chosen)
    pending = list(chosen)
    while pending:
        node = by_name[pending.pop()]
        more = [each for each in node.all_input_nodes if each.op == "call_function" and not is_tensor(each)]
        picks = [each for each in node.users if each.target is operator.getitem]
        if isinstance(node.meta.get("val"), list | tuple) and picks and not any(each.name in wanted for each in picks):
            more.append(picks[0])
        pending += [each.name for each in more if each.name not in wanted]
        wanted.update(each.name for each in more)
    nodes = [node for node in program.graph.nodes if node.name in wanted and node.op == "call_function"]
    returned = set(program.graph.output_node().all_input_nodes)
    outputs = [
        node.name
        for node in nodes
        if is_tensor(node) and (node in returned or not any(each.name in wanted for each in node.users))
    ]
    return Part(program, tuple(node.name for node in nodes), tuple(outputs))


def is_tensor(node: fx.Node) -> bool:
    """Whether a tensor can be passed in where ``node`` is."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def example_of(node: fx.Node) -> torch.Tensor:
    """Return zeros of the shape and dtype that ``node`` has where its symbols are as they were exported."""
    value = node.meta["val"]
    return torch.zeros([_hint(size) for size in value.shape], dtype=value.dtype)


def _hint(size: Any) -> int:
    if isinstance(size, int):
        return size
    hint = size.node.hint
    return 2 if hint is None else int(hint)  # an unbacked symbol: any size will do


class _Extraction:
    """Copies a part of a graph into a new one."""

    def __init__(self, program: ExportedProgram, nodes: Collection[str], outputs: Sequence[str]):
        self.original = program
        self.kept, self.outputs = set(nodes), outputs
        self.graph = fx.Graph()
        self.copies: dict[fx.Node, fx.Node] = {}

    def program(self, values_of: ValuesOf) -> ExportedProgram:
        original = self.original
        nodes = {node.name: node for node in original.graph.nodes}
        read = {each for name in self.kept for each in nodes[name].all_input_nodes}
        results, result_specs = self._results()
        written = {spec.target for spec in result_specs if spec.target}
        inputs: list[InputSpec] = []
        for spec in original.graph_signature.input_specs:
            node = nodes.get(spec.arg.name)
            if node is not None and (node in read or node in results or {spec.target, spec.arg.name} & written):
                self._copy(node)
                inputs.append(spec)
        cut = [each for each in original.graph.nodes if each in read and self._is_cut(each)]
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
        new.name = node.name  # copying renames what export called `input`; signatures go by names
        self.copies[node] = new

    def _placeholder(self, node: fx.Node) -> None:
        new = self.graph.placeholder(node.name)
        new.name = new.target = node.name
        new.meta = {"val": node.meta["val"]}
        self.copies[node] = new

    def _results(self) -> tuple[list[fx.Node], list[OutputSpec]]:
        """Return the nodes that are returned: new state first, as it was."""
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
        taken = [spec for spec in inputs if spec.kind is InputKind.USER_INPUT]
        given = example_leaves(original)
        values = values_of([node.name for node in cut])
        examples = tuple(values[each.arg.name] if each.arg.name in values else given[each.arg.name] for each in taken)
        returned = sum(spec.kind is OutputKind.USER_OUTPUT for spec in outputs)
        signature = ModuleCallSignature(
            inputs=[spec.arg for spec in taken],
            outputs=[spec.arg for spec in outputs if spec.kind is OutputKind.USER_OUTPUT],
            in_spec=pytree.tree_structure((examples, {})),
            out_spec=pytree.tree_structure(tuple(range(returned))),
            forward_arg_names=[spec.arg.name for spec in taken],
        )
        held = {spec.target for spec in inputs}
        root = fx.GraphModule(original.graph_module, self.graph)
        return ExportedProgram(
            root=root,
            graph=root.graph,
            graph_signature=ExportGraphSignature(inputs, outputs),
            state_dict={name: value for name, value in original.state_dict.items() if name in held},
            range_constraints=original.range_constraints,
            module_call_graph=[ModuleCallEntry("", signature)],
            example_inputs=(examples, {}),
            constants={name: value for name, value in original.constants.items() if name in held},
            verifiers=original.verifiers,
        )


def example_leaves(program: ExportedProgram) -> dict[str, Any]:
    """Return what ``program`` was exported with, by the names of its placeholders; zeros where it does not know."""
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
    """Return what the nodes ``names`` compute in PyTorch of the inputs that ``program`` was exported with."""
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
    """Return zeros in the place of what the nodes ``names`` compute, which no failure of a lowering depends on."""
    wanted = set(names)
    return {node.name: example_of(node) for node in program.graph.nodes if node.name in wanted}
