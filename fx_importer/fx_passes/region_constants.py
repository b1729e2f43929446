"""Constant tensors in branches and loop bodies, which torch cannot make functional, as operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, TensorArgument

from fx_importer.fx_graph.programs import fake_mode_of, with_graph, with_rewritten_modules
from fx_importer.fx_passes.fx_pass import FxContext, FxPass

Constant = tuple[int, str]
"""The identity of the module that holds a tensor, and the tensor's name in it."""

_HIGHER_ORDER = torch.ops.higher_order
_OPERANDS: Mapping[Any, int] = {
    _HIGHER_ORDER.cond: 3,
    _HIGHER_ORDER.while_loop: 3,
    _HIGHER_ORDER.scan: 3,
    _HIGHER_ORDER.map_impl: 2,
    _HIGHER_ORDER.associative_scan: 2,
}
"""By operator, the argument whose operands are the last inputs of its regions."""


def _lift_region_constants(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Return ``program`` with each constant tensor in a branch or loop body as an operand of its operator.

    ``torch.cond(p, lambda x: x + torch.tensor([1.0]), ...)`` has one: ``run_decompositions`` of torch 2.13 raises
    "Attempting to use FunctionalTensor on its own" for it.
    """
    tensors = dict(_constants_in_regions(program.graph_module))
    mode = fake_mode_of(program.graph)
    if not tensors or mode is None:
        return program
    targets = {key: _unused_name(program, number) for number, key in enumerate(tensors)}
    values = {key: mode.from_tensor(tensor, static_shapes=True) for key, tensor in tensors.items()}
    taken: dict[int, Sequence[Constant]] = {id(program.graph_module): list(tensors)}
    added: list[InputSpec] = []

    def lift(graph: fx.Graph, owner: fx.GraphModule) -> None:
        inputs = graph.find_nodes(op="placeholder")
        is_root = owner is program.graph_module
        known: dict[Constant, fx.Node] = {}
        place = graph._root.next if is_root or not inputs else inputs[-1].next
        for key in taken.get(id(owner), ()):
            with graph.inserting_before(place):
                known[key] = graph.placeholder(targets[key])
            known[key].meta["val"] = values[key]
            if is_root:
                argument = TensorArgument(known[key].name)
                added.append(InputSpec(InputKind.CONSTANT_TENSOR, argument, targets[key]))
        for node in graph.find_nodes(op="get_attr"):
            if (key := (id(owner), str(node.target))) in known:
                node.replace_all_uses_with(known[key])
                graph.erase_node(node)
        for node in graph.nodes:
            if (position := _OPERANDS.get(node.target)) is not None:
                regions = _regions(node, owner)
                constants = list(dict.fromkeys(key for region in regions for key, _ in _held_in(region)))
                taken.update((id(region), constants) for region in regions)
                before = node.args[position] if position < len(node.args) else ()
                node.update_arg(position, (*before, *(known[key] for key in constants)))

    root = with_rewritten_modules(program.graph_module, lift)
    signature = program.graph_signature
    signature = ExportGraphSignature([*added, *signature.input_specs], signature.output_specs)
    constants = {**program.constants, **{targets[key]: tensor for key, tensor in tensors.items()}}
    return with_graph(program, root.graph, signature, root=root, constants=constants)


def _constants_in_regions(root: fx.GraphModule) -> Iterator[tuple[Constant, torch.Tensor]]:
    """Yield the tensors in the regions of operators in ``root``, by their place."""
    for node in root.graph.nodes:
        if node.target in _OPERANDS:
            for region in _regions(node, root):
                yield from _held_in(region)


def _held_in(region: fx.GraphModule) -> Iterator[tuple[Constant, torch.Tensor]]:
    for node in region.graph.find_nodes(op="get_attr"):
        held = getattr(region, str(node.target), None)
        if isinstance(held, torch.Tensor):
            yield (id(region), str(node.target)), held
    yield from _constants_in_regions(region)


def _regions(node: fx.Node, owner: fx.GraphModule) -> list[fx.GraphModule]:
    """Return the regions of a higher-order operator."""
    names = [str(arg.target) for arg in node.args if isinstance(arg, fx.Node) and arg.op == "get_attr"]
    return [region for name in names if isinstance(region := owner.get_submodule(name), fx.GraphModule)]


def _unused_name(program: ExportedProgram, number: int) -> str:
    names = {*program.constants, *program.state_dict, *(node.name for node in program.graph.nodes)}
    name = f"region_constant_{number}"
    while name in names:
        name += "_"
    return name


LIFT_REGION_CONSTANTS = FxPass("lift-region-constants", _lift_region_constants)
