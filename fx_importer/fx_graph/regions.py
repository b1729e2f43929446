"""Regions of higher-order operators: inlined where export wraps code under ``torch.no_grad`` and the like.

Constant tensors in branches and loop bodies, which torch cannot make functional, become operands.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, TensorArgument

from fx_importer.fx_graph.programs import fake_mode_of, with_graph, with_rewritten_graphs, with_rewritten_modules

_HIGHER_ORDER = torch.ops.higher_order

REGIONS: Mapping[Any, Callable[..., tuple[fx.Node, Sequence[Any]]]] = {
    _HIGHER_ORDER.wrap_with_set_grad_enabled: lambda enabled, body, *operands: (body, operands),
    _HIGHER_ORDER.strict_mode: lambda body, operands: (body, operands),
    _HIGHER_ORDER.hints_wrapper: lambda body, operands, keywords, **hints: (body, operands),
    _HIGHER_ORDER.invoke_subgraph: lambda body, identifier, *operands: (body, operands),
    _HIGHER_ORDER.run_const_graph: lambda body, operands: (body, operands),
}
"""By higher-order operator, a function that returns body and operands from its arguments."""


def with_inlined_regions(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with its regions inlined, so that the uses and writes of a tensor are in one graph."""
    return with_rewritten_graphs(program, inline_regions) if has_regions(program.graph_module) else program


def has_regions(module: torch.nn.Module) -> bool:
    """Return whether ``module`` or a submodule has regions."""
    graphs = [part.graph for part in module.modules() if isinstance(part, fx.GraphModule)]
    return any(graph.find_nodes(op="call_function", target=region) for graph in graphs for region in REGIONS)


def inline_regions(graph: fx.Graph, owner: torch.nn.Module) -> None:
    """Inline the regions of ``graph``, whose bodies are attributes of ``owner``."""
    for node in graph.nodes:
        if (region := REGIONS.get(node.target)) is not None:
            body, operands = region(*node.args, **node.kwargs)
            _inline(node, str(body.target), owner, operands)


def _inline(node: fx.Node, name: str, owner: torch.nn.Module, operands: Sequence[Any]) -> None:
    region = owner.get_submodule(name)
    assert isinstance(region, fx.GraphModule)
    body = copy.deepcopy(region.graph)
    for attribute in body.find_nodes(op="get_attr"):
        attribute.target = f"{name}.{attribute.target}"
    inputs: dict[fx.Node, Any] = dict(zip(body.find_nodes(op="placeholder"), operands, strict=True))
    with node.graph.inserting_before(node):
        results = node.graph.graph_copy(body, inputs)
    if isinstance(results, fx.Node) and not isinstance(node.meta["val"], tuple | list):
        node.replace_all_uses_with(results)
    for user in list(node.users):
        assert user.target is operator.getitem
        assert isinstance(results, tuple | list)
        user.replace_all_uses_with(results[user.args[1]])  # type: ignore[arg-type]
        node.graph.erase_node(user)
    node.graph.erase_node(node)
    inline_regions(node.graph, owner)


Constant = tuple[int, str]
"""The identity of the module that holds a tensor, and the tensor's name in it."""

_OPERANDS: Mapping[Any, int] = {
    _HIGHER_ORDER.cond: 3,
    _HIGHER_ORDER.while_loop: 3,
    _HIGHER_ORDER.scan: 3,
    _HIGHER_ORDER.map_impl: 2,
    _HIGHER_ORDER.associative_scan: 2,
}
"""By operator, the argument whose operands are the last inputs of its regions."""


def with_lifted_constants(program: ExportedProgram) -> ExportedProgram:
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
