"""Exported programs that compute one of several results."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind
from torch.utils import _pytree as pytree

from fx_importer.fx_graph.programs import copied_graph, with_graph


def with_one_result(program: ExportedProgram, number: int, *, without: int = 0) -> ExportedProgram:
    """Return a copy of ``program`` that returns one tensor of those its model returns, and updates the same state.

    Args:
        program: of a model that returns a tuple of tensors.
        number: the index of the tensor.
        without: the number of positional arguments at the end that the copy does not take: tensors on whose values
            neither the result nor the state depends, of sizes that other inputs have.
    """
    graph = copied_graph(program.graph)
    signature, output = program.graph_signature, graph.output_node()
    returned: Any = output.args[0]
    user = [place for place, spec in enumerate(signature.output_specs) if spec.kind is OutputKind.USER_OUTPUT]
    kept = [place for place in range(len(returned)) if place not in user or place == user[number]]
    output.args = (tuple(returned[place] for place in kept),)
    graph.eliminate_dead_code()

    call = program.module_call_graph[0].signature
    assert call is not None
    args, kwargs = pytree.tree_unflatten(list(range(call.in_spec.num_leaves)), call.in_spec)
    gone, called = args[len(args) - without :], call.forward_arg_names
    given = [spec for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    names = {given[place].arg.name for place in gone}
    erased, others = [], []
    for node in graph.find_nodes(op="placeholder"):
        (erased if node.name in names else others).append(node)
    for node in erased:
        _read_sizes_of(others, node)
        graph.erase_node(node)
    changed = with_graph(
        program,
        graph,
        ExportGraphSignature(list(signature.input_specs), [signature.output_specs[place] for place in kept]),
    )
    if guards := getattr(program, "_guards_code", None):  # tracing again evaluates them
        changed._guards_code = [guard for guard in guards if not any(f"L['{name}']" in guard for name in names)]
    changed._module_call_graph = copy.copy(program.module_call_graph)
    changed._module_call_graph[0] = dataclasses.replace(
        program.module_call_graph[0],
        signature=dataclasses.replace(
            call,
            in_spec=pytree.tree_structure((args[: len(args) - without], kwargs)),
            out_spec=pytree.tree_structure(0),
            forward_arg_names=called and called[: len(args) - without] + called[len(args) :],
        ),
    )
    examples, named = program.example_inputs or ((), {})
    changed._example_inputs = (examples[: len(args) - without], named)
    return changed


def _read_sizes_of(nodes: Sequence[fx.Node], node: fx.Node) -> None:
    """Read the dynamic sizes of ``node`` from inputs of the same sizes among ``nodes`` (export reads one for all)."""
    sizes = {str(size): (node, axis) for node in nodes for axis, size in enumerate(_shape(node))}
    for user in tuple(node.users):
        if user.target is torch.ops.aten.sym_size.int:
            axis: Any = user.args[1]
            user.args = sizes[str(_shape(node)[axis])]


def _shape(node: fx.Node) -> Sequence[Any]:
    value = node.meta.get("val")
    return value.shape if isinstance(value, torch.Tensor) else ()
