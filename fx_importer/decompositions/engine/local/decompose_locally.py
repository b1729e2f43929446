"""Application of decomposition rules to an exported program without tracing the whole program again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch._export.verifier import Verifier
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from fx_importer.decompositions.engine.local.example_values import SizeNodes
from fx_importer.decompositions.engine.local.graph_copy import GraphCopy, ReplacementCache
from fx_importer.decompositions.engine.local.recorded_replacements import RecordedReplacements
from fx_importer.decompositions.engine.local.rule_tracing import RetraceRequired, Rules
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import fake_mode_of, with_graph

_MUTATIONS = {
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
}
"""Kinds of inputs that a program may mutate, and the kinds of outputs that return their new values."""


def decompose_locally(
    program: ExportedProgram, rules: Rules, recorded: RecordedReplacements | None = None
) -> ExportedProgram:
    """Return a functional copy of ``program`` with ``rules`` applied to the fixpoint.

    ``recorded`` are the replacements that ``rules`` made in earlier programs, if they never change.

    Raises:
        RetraceRequired: if the program, or one of its nodes, cannot be decomposed locally.
    """
    for name, tensor in {**program.state_dict, **program.constants}.items():
        if isinstance(tensor, Tensor) and type(tensor) not in (Tensor, torch.nn.Parameter):
            raise RetraceRequired(f"'{name}' is of type {type(tensor).__name__}, which tracing takes apart")
    old, graph = program.graph, fx.Graph()
    walk = GraphCopy(graph, ReplacementCache(rules, _mode(old), recorded), SizeNodes(graph))
    placeholders = old.find_nodes(op="placeholder")
    walk.run(placeholders, old)
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    before = {node: walk.values[node] for node in placeholders if specs[node.name].kind in _MUTATIONS}
    walk.first_input = next((kept for kept in before.values() if specs[kept.name].kind is InputKind.USER_INPUT), None)
    walk.writable = frozenset(before)
    walk.run((call for call in old.nodes if call.op != "placeholder"), old)
    written = {node.name: now for node, kept in before.items() if (now := walk.values[node]) is not kept}
    results: Any = graph.output_node().args[0]
    graph.output_node().args = ((*written.values(), *results),)
    for node in reversed(graph.nodes):
        if not node.users and not node.is_impure(impure_random=False):
            graph.erase_node(node)
    for node in graph.find_nodes(op="call_function", target=aten.view.default, sort=False):
        node.target = aten.reshape.default  # its operand may have other strides than in the exported graph
    return with_graph(
        *(program, graph, _signature_of(program, walk, written)),
        constants=_constants(program, walk),
        verifiers=[Verifier],  # the program's own may be the one for programs with mutations
    )


def _mode(graph: fx.Graph) -> FakeTensorMode:
    if (mode := fake_mode_of(graph)) is None:
        raise RetraceRequired("its nodes have no example values")
    return mode


def _signature_of(program: ExportedProgram, walk: GraphCopy, written: Mapping[str, fx.Node]) -> ExportGraphSignature:
    signature = program.graph_signature
    made = [
        InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), node.name)
        for _, node in walk.constants.values()
    ]
    specs = {spec.arg.name: spec for spec in (*signature.input_specs, *made)}
    mutations = [
        OutputSpec(_MUTATIONS[specs[name].kind], TensorArgument(node.name), specs[name].target or name)
        for name, node in written.items()
    ]
    names = [node.name for node in walk.graph.find_nodes(op="placeholder")]
    return ExportGraphSignature([specs[name] for name in names], [*mutations, *signature.output_specs])


def _constants(program: ExportedProgram, walk: GraphCopy) -> dict[str, Any]:
    return {**program.constants, **{node.name: tensor for tensor, node in walk.constants.values()}}
