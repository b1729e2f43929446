"""A program that returns what it computes on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree as pytree

from fx_importer.fx_graph.programs import with_rewritten_modules

_OUTPUTS = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)


def tensors_on_the_way(program: ExportedProgram) -> Iterator[fx.Node]:
    """Yield the nodes of ``program`` that compute one tensor, in order; what is in branches and loops is not seen."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.Tensor) and value.layout is torch.strided:
            yield node


def tapped(program: ExportedProgram, names: Sequence[str]) -> ExportedProgram:
    """Return ``program`` with the values of the nodes ``names`` as its outputs, in a tuple, instead of its own.

    New state is returned as before. A value is copied where it stands: what is written to it later does not show.
    """
    original = program.graph_module
    kept: list[OutputSpec] = []
    taps: list[str] = []

    def rewrite(graph: fx.Graph, module: fx.GraphModule) -> None:
        if module is original:
            taps.extend(node.name for node in _tap(graph, names))
            kept.extend(_replace_outputs(graph, program.graph_signature, taps))

    root = with_rewritten_modules(original, rewrite)
    specs = [*kept, *(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name), None) for name in taps)]
    calls = list(program.module_call_graph)
    assert calls[0].signature is not None
    spec = pytree.tree_structure(tuple(range(len(taps))))
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


def _tap(graph: fx.Graph, names: Collection[str]) -> Iterator[fx.Node]:
    wanted = set(names)
    for node in list(graph.nodes):
        if node.name in wanted:
            with graph.inserting_after(node):
                tap = graph.call_function(torch.ops.aten.clone.default, (node,))
            tap.meta = {key: node.meta[key] for key in ("val", "stack_trace", "nn_module_stack") if key in node.meta}
            yield tap


def _replace_outputs(graph: fx.Graph, signature: ExportGraphSignature, taps: Collection[str]) -> list[OutputSpec]:
    """Return ``taps``, and before them what is not for the user; return the specifications of the latter."""
    ending = graph.output_node()
    returned = ending.args[0]
    assert isinstance(returned, list | tuple)
    pairs = zip(signature.output_specs, returned, strict=True)
    kept = [(spec, node) for spec, node in pairs if spec.kind not in _OUTPUTS]
    by_name = {node.name: node for node in graph.nodes}
    ending.args = ((*(node for _, node in kept), *(by_name[name] for name in taps)),)
    return [spec for spec, _ in kept]
