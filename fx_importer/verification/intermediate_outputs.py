"""Programs with intermediate values as outputs, and the nodes that a wrong result may come from."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree as pytree

from fx_importer.fx_graph.programs import with_rewritten_modules
from fx_importer.verification.comparison import Comparison
from fx_importer.verification.verdict import Check

_OUTPUTS = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)


def intermediate_tensors(program: ExportedProgram) -> Iterator[fx.Node]:
    """Yield the nodes of ``program`` that compute one tensor, in order, without those in subgraphs."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.Tensor) and value.layout is torch.strided:
            yield node


def with_intermediate_outputs(program: ExportedProgram, names: Sequence[str]) -> ExportedProgram:
    """Return ``program`` with the values of the nodes ``names`` as a tuple of outputs, instead of its own.

    New state is returned as before. Values are cloned where they are computed, before later mutations.
    """
    original = program.graph_module
    kept: list[OutputSpec] = []
    outputs: list[str] = []

    def rewrite(graph: fx.Graph, module: fx.GraphModule) -> None:
        if module is original:
            outputs.extend(node.name for node in _copy_outputs(graph, names))
            kept.extend(_replace_outputs(graph, program.graph_signature, outputs))

    root = with_rewritten_modules(original, rewrite)
    specs = [*kept, *(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name), None) for name in outputs)]
    calls = list(program.module_call_graph)
    assert calls[0].signature is not None
    spec = pytree.tree_structure(tuple(range(len(outputs))))
    calls[0] = dataclasses.replace(calls[0], signature=dataclasses.replace(calls[0].signature, out_spec=spec))
    return ExportedProgram(
        root=root,
        graph=root.graph,
        graph_signature=ExportGraphSignature(list(program.graph_signature.input_specs), specs),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=calls,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _copy_outputs(graph: fx.Graph, names: Collection[str]) -> Iterator[fx.Node]:
    wanted = set(names)
    for node in list(graph.nodes):
        if node.name in wanted:
            with graph.inserting_after(node):
                output = graph.call_function(torch.ops.aten.clone.default, (node,))
            output.meta = {key: node.meta[key] for key in ("val", "stack_trace", "nn_module_stack") if key in node.meta}
            yield output


def _replace_outputs(graph: fx.Graph, signature: ExportGraphSignature, outputs: Collection[str]) -> list[OutputSpec]:
    """Make ``graph`` return ``outputs`` after the results that are not user outputs; return the specs of these
    results."""
    ending = graph.output_node()
    returned = ending.args[0]
    assert isinstance(returned, list | tuple)
    pairs = zip(signature.output_specs, returned, strict=True)
    kept = [(spec, node) for spec, node in pairs if spec.kind not in _OUTPUTS]
    by_name = {node.name: node for node in graph.nodes}
    ending.args = ((*(node for _, node in kept), *(by_name[name] for name in outputs)),)
    return [spec for spec, _ in kept]


Compared = Mapping[str, Comparison]
"""Comparisons of intermediate values by node name, in order."""


def nodes_by_name(program: ExportedProgram) -> dict[str, fx.Node]:
    """Return the nodes of ``program`` by name, in order."""
    return {node.name: node for node in program.graph.nodes}


def source_node(node: fx.Node) -> fx.Node:
    """Return the node whose results ``node`` selects from with ``getitem``, or ``node``."""
    while node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def suspect_nodes(program: ExportedProgram, compared: Compared) -> list[str]:
    """Return the nodes with wrong values and right inputs."""
    tainted: set[str] = set()
    suspects: list[str] = []
    for node in program.graph.nodes:
        from_wrong = any(operand.name in tainted for operand in node.all_input_nodes)
        known = compared.get(node.name)
        if (from_wrong and known is None) or (known is not None and not known.passed):
            tainted.add(node.name)
        if known is not None and not known.passed and not from_wrong:
            suspects.append(node.name)
    return suspects


def first_wrong_output_node(program: ExportedProgram, check: Check) -> str:
    """Return the node of the first wrong output; for other results, the last node."""
    position = next(i for i, output in enumerate(check.outputs) if not output.comparison.passed)
    returned = program.graph.output_node().args[0]
    assert isinstance(returned, list | tuple)
    node = returned[position] if position < len(returned) else None
    if isinstance(node, fx.Node) and node.op == "call_function":
        return node.name
    return [node.name for node in program.graph.nodes if node.op == "call_function"][-1]
