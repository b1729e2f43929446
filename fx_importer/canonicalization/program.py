"""Carries an exported program to normal form."""

from __future__ import annotations

import copy
import dataclasses

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature

from fx_importer.canonicalization.identities import IDENTITIES
from fx_importer.canonicalization.inlining import inline_regions
from fx_importer.canonicalization.rank_zero import RANK_ZERO
from fx_importer.canonicalization.rewriting import Rules
from fx_importer.canonicalization.spelling import SPELLINGS
from fx_importer.canonicalization.strides import STRIDES

aten = torch.ops.aten

# What these say is in the program's range constraints, or holds for any input that the program was exported for.
ASSERTIONS = frozenset(
    (
        *(aten._assert_scalar.default, aten._assert_tensor_metadata.default, aten._assert_async.msg),
        *(aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default),
    )
)

PASSES: tuple[Rules, ...] = (STRIDES, RANK_ZERO, SPELLINGS, IDENTITIES)
"""In order: strides are as traced only until others touch the graph; identities show once things are spelled alike."""


def canonicalize(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` in normal form; the given program is left alone, the weights are shared."""
    root = _canonical(program.graph_module)
    return ExportedProgram(
        root=root,
        graph=root.graph,
        graph_signature=_signature(program.graph_signature, root.graph),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _canonical(module: fx.GraphModule) -> fx.GraphModule:
    graph = copy.deepcopy(module.graph)  # shares what the nodes' metadata holds
    for node, original in zip(graph.nodes, module.graph.nodes, strict=True):
        node.name = original.name  # copying renames what export called `input`; the graph signature goes by names
    inline_regions(graph, module)
    for node in graph.nodes:
        if node.target in ASSERTIONS:
            graph.erase_node(node)
    if not any(is_in_place(node) for node in graph.nodes):
        for rules in PASSES:
            _apply(rules, graph)
    graph.eliminate_dead_code()
    canonical = fx.GraphModule(module, graph)
    canonical.meta.update(module.meta)
    for node in graph.find_nodes(op="get_attr"):
        path, _, name = node.target.rpartition(".")
        if isinstance(child := getattr(holder := canonical.get_submodule(path), name), fx.GraphModule):
            setattr(holder, name, _canonical(child))  # the holder is new: a GraphModule copies what its graph names
    return canonical


def is_in_place(node: fx.Node) -> bool:
    """Return whether ``node`` writes to one of its arguments: then a copy of it is not the same as itself."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _apply(rules: Rules, graph: fx.Graph) -> None:
    for node in graph.nodes:
        rule = rules.get(node.target) if node.op == "call_function" else None
        if rule is not None and (replacement := rule(node)) is not None:
            node.replace_all_uses_with(replacement)


def _signature(signature: ExportGraphSignature, graph: fx.Graph) -> ExportGraphSignature:
    """Return ``signature`` with the names of the values that ``graph`` returns now."""
    results = graph.output_node().args[0]
    assert isinstance(results, list | tuple)
    specs = [
        dataclasses.replace(spec, arg=dataclasses.replace(spec.arg, name=result.name))
        if isinstance(result, fx.Node) and not isinstance(spec.arg, ConstantArgument)
        else spec
        for spec, result in zip(signature.output_specs, results, strict=True)
    ]
    return ExportGraphSignature(input_specs=list(signature.input_specs), output_specs=specs)
