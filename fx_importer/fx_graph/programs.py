"""Exported programs as values: changing a graph makes a new program."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch._export.verifier import Verifier
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind, InputSpec
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._pytree import tree_leaves

SAME_IN_ALL_CALLS = "same_in_all_calls"
"""In the metadata of an input of a graph that is called: whether all calls give the same."""

LIFTED_TENSOR_PREFIX = "lifted_tensor_"
"""How export's own names begin, of tensors that stood in the code."""

Rewrite = Callable[[fx.Graph, fx.GraphModule], None]
"""Changes a graph. The module is what the graph's attributes are read from."""


def with_rewritten_graphs(program: ExportedProgram, rewrite: Rewrite, *, in_place: bool = False) -> ExportedProgram:
    """Return a copy of ``program`` with ``rewrite`` applied to its graph, and to those of its higher-order operators.

    ``program`` is left alone, unless ``in_place`` lets its graphs be changed: it is then not to be used any more. The
    copy shares the weights and what the nodes' metadata holds.
    """
    root = with_rewritten_modules(program.graph_module, rewrite, in_place=in_place)
    return with_graph(program, root.graph, program.graph_signature, root=root)


def with_graph(
    program: ExportedProgram,
    graph: fx.Graph,
    signature: ExportGraphSignature,
    *,
    root: fx.GraphModule | None = None,
    constants: Mapping[str, Any] | None = None,
    verifiers: list[type[Verifier]] | None = None,
) -> ExportedProgram:
    """Return a program of ``graph``, in ``root`` if that is one already, and else as ``program``.

    ``signature`` need not know the names of what ``graph`` returns. Unlike torch's constructor, this neither verifies
    the graph nor compiles it before it is run: both cost more than most of what changes a graph.
    """
    changed = copy.copy(program)
    changed._graph_module = graph_module(program.graph_module, graph) if root is None else root
    changed._graph_signature = update_signature(signature, graph)
    if constants is not None:
        changed._constants = dict(constants)
    if verifiers is not None:
        changed._verifiers = verifiers
    return changed


def graph_module(
    root: fx.GraphModule, graph: fx.Graph, added: Mapping[str, fx.GraphModule] | None = None
) -> fx.GraphModule:
    """Return a module of ``graph``, compiled when it is first run, with the attributes that it names: ``added``, or
    else those of ``root``."""
    held: Any = root
    if added:
        named = {str(node.target) for node in graph.find_nodes(op="get_attr")}
        held = {name: added[name] if name in added else operator.attrgetter(name)(root) for name in named}
    module = _LazyGraphModule(held, graph)
    module.meta.update(root.meta)
    return module


def with_rewritten_modules(module: fx.GraphModule, rewrite: Rewrite, *, in_place: bool = False) -> fx.GraphModule:
    """Return a copy of ``module`` with ``rewrite`` applied to its graph, and to those that its graph names.

    ``in_place``: these graphs themselves are changed, rather than copies.
    """
    graph = module.graph
    if not in_place:
        graph = copy.deepcopy(graph)
        for node, original in zip(graph.nodes, module.graph.nodes, strict=True):
            node.name = original.name  # copying renames what export called `input`; the graph signature goes by names
    rewrite(graph, module)
    changed = graph_module(module, graph)
    for node in graph.find_nodes(op="get_attr"):
        path, _, name = node.target.rpartition(".")
        if isinstance(child := getattr(holder := changed.get_submodule(path), name), fx.GraphModule):
            # The holder is new: a GraphModule copies what its graph names.
            setattr(holder, name, with_rewritten_modules(child, rewrite, in_place=in_place))
    return changed


def update_signature(signature: ExportGraphSignature, graph: fx.Graph) -> ExportGraphSignature:
    """Return ``signature`` with the names of what ``graph`` returns now, and without the inputs that are gone."""
    results = graph.output_node().args[0]
    assert isinstance(results, list | tuple)
    specs = [
        dataclasses.replace(spec, arg=dataclasses.replace(spec.arg, name=result.name))
        if isinstance(result, fx.Node) and not isinstance(spec.arg, ConstantArgument)
        else spec
        for spec, result in zip(signature.output_specs, results, strict=True)
    ]
    inputs = {node.name for node in graph.find_nodes(op="placeholder")}
    kept = [spec for spec in signature.input_specs if spec.arg.name in inputs]
    return ExportGraphSignature(input_specs=kept, output_specs=specs)


def held_value(program: ExportedProgram, spec: InputSpec) -> Any:
    """Return the parameter, the buffer, persistent or not, or the constant that ``spec``, of an input, stands for."""
    assert spec.target is not None
    held = program.state_dict.get(spec.target)
    return program.constants[spec.target] if held is None else held


def is_weight(spec: InputSpec, tensor: torch.Tensor) -> bool:
    """Whether ``tensor``, which ``spec`` stands for, may be held outside of a module, under its name.

    It is in the state dict, or has no memory that could be in the module.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized or not tensor.numel():
        return False
    kept = spec.kind is InputKind.PARAMETER or (spec.kind is InputKind.BUFFER and spec.persistent is not False)
    return kept or tensor.is_meta


def weight_names(program: ExportedProgram) -> set[str]:
    """Return the names of what ``program`` holds and may be held outside of a module."""
    held = [spec for spec in program.graph_signature.input_specs if spec.kind in _HELD and spec.target is not None]
    return {spec.target for spec in held if spec.target and is_weight(spec, held_value(program, spec))}


_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def storage_key(tensor: torch.Tensor) -> int:
    """Return a number that tells one piece of memory from another, for as long as there are tensors in it."""
    storage = tensor.untyped_storage()
    if storage.device.type == "meta":  # there it has no address, and that of a fake tensor is not to be asked for
        return storage._cdata
    return storage.data_ptr() or storage._cdata


def storage_view_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what two tensors have in common if they are one."""
    return storage_key(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def as_node_dtype(node: fx.Node, tensor: torch.Tensor) -> torch.Tensor:
    """Return what ``node`` stands for, of a tensor that the program holds.

    Where their dtypes differ, it is the same bits, or the two parts of complex numbers along a new last axis.
    """
    example = node.meta.get("val")
    if not isinstance(example, torch.Tensor) or example.dtype == tensor.dtype:
        return tensor
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor.view(example.dtype)


def with_tensors(program: ExportedProgram, tensors: Mapping[str, torch.Tensor]) -> ExportedProgram:
    """Return ``program`` with other tensors, of the same types, under those of its names that ``tensors`` has."""
    changed = copy.copy(program)
    changed._state_dict = {name: tensors.get(name, each) for name, each in program.state_dict.items()}
    changed._constants = {name: tensors.get(name, each) for name, each in program.constants.items()}
    return changed


def empty_on(
    tensor: torch.Tensor,
    device: torch.device,
    mode: FakeTensorMode | None = None,
    *,
    memory: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return a tensor of the type and strides of ``tensor`` on ``device``, a fake one if there is a ``mode``.

    It is in ``memory``, bytes, if that is given, in the place that ``tensor`` has in its own.
    """

    def empty() -> torch.Tensor:
        if memory is not None:
            return memory.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)

    if mode is None:
        made = empty()
    else:
        with mode:
            made = empty()
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)


def fake_mode_of(graph: fx.Graph) -> FakeTensorMode | None:
    """Return the mode that the example values of ``graph`` are of, if there are any."""
    leaves = (each for node in graph.nodes for each in tree_leaves(node.meta.get("val")))
    return next((each.fake_mode for each in leaves if isinstance(each, FakeTensor)), None)


def is_empty(value: object) -> bool:
    """Whether ``value``, an example of a node, is a dense tensor that is known to have no elements."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return all(isinstance(size, int) for size in value.shape) and 0 in value.shape
