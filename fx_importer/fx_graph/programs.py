"""Exported programs as values: rewriting a graph makes a new program that shares the weights; submodules of nodes."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import fx
from torch._export.verifier import Verifier
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind, InputSpec, OutputKind
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.passes.shape_prop import TensorMetadata
from torch.utils._pytree import TreeSpec, tree_leaves

from fx_importer.fx_graph.result_sizes import of_user

SAME_IN_ALL_CALLS = "same_in_all_calls"
"""Metadata key of an input of a called graph: whether all calls pass the same value."""

LIFTED_TENSOR_PREFIX = "lifted_tensor_"
"""Prefix of the names that export gives to tensor literals in the code."""

Rewrite = Callable[[fx.Graph, fx.GraphModule], None]
"""A function that rewrites a graph in place. The module holds the graph's attributes."""


def with_rewritten_graphs(program: ExportedProgram, rewrite: Rewrite, *, in_place: bool = False) -> ExportedProgram:
    """Return a copy of ``program`` with ``rewrite`` applied to its graph and the subgraphs of higher-order operators.

    With ``in_place``, the graphs of ``program`` are rewritten themselves, and it must not be used any more. The copy
    shares the weights and the values in the nodes' metadata.
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
    """Return a copy of ``program`` with ``graph``, in the module ``root`` if given, else with its own attributes.

    The output names of ``signature`` are updated from ``graph``. Unlike torch's constructor, this neither verifies the
    graph nor compiles it before it is run: both cost more than most rewrites.
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
    """Return a lazily compiled module of ``graph``, whose attributes come from ``added``, or else from ``root``."""
    attributes: Any = root
    if added:
        named = {str(node.target) for node in graph.find_nodes(op="get_attr")}
        attributes = {name: added[name] if name in added else operator.attrgetter(name)(root) for name in named}
    module = _LazyGraphModule(attributes, graph)
    module.meta.update(root.meta)
    return module


def with_rewritten_modules(module: fx.GraphModule, rewrite: Rewrite, *, in_place: bool = False) -> fx.GraphModule:
    """Return a copy of ``module`` with ``rewrite`` applied to its graph and its submodules' graphs.

    With ``in_place``, the graphs themselves are rewritten, not copies.
    """
    graph = module.graph
    if not in_place:
        graph = copied_graph(graph)
    rewrite(graph, module)
    if in_place and isinstance(module, _LazyGraphModule) and not module._modules and module.graph is graph:
        module.recompile()  # when it is called
        return module
    changed = graph_module(module, graph)
    for node in graph.find_nodes(op="get_attr"):
        path, _, name = node.target.rpartition(".")
        if isinstance(child := getattr(holder := changed.get_submodule(path), name), fx.GraphModule):
            # The holder is new: a GraphModule copies the attributes that its graph names.
            setattr(holder, name, with_rewritten_modules(child, rewrite, in_place=in_place))
    return changed


def copied_graph(graph: fx.Graph) -> fx.Graph:
    """Return a copy of ``graph``, with the names of its nodes."""
    copied = copy.deepcopy(graph)
    copied.owning_module = graph.owning_module  # whose attributes are the subgraphs that its nodes name
    for node, original in zip(copied.nodes, graph.nodes, strict=True):
        node.name = original.name  # copying renames a placeholder called `input`, which the graph signature names
    return copied


def update_signature(signature: ExportGraphSignature, graph: fx.Graph) -> ExportGraphSignature:
    """Return ``signature`` with the current output names of ``graph``, and without inputs that it no longer has."""
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


def call_structure(program: ExportedProgram) -> tuple[TreeSpec | None, TreeSpec | None]:
    """Return the structures of inputs and users' outputs, without the class that ``call_spec`` makes in each call."""
    if not program.module_call_graph or (signature := program.module_call_graph[0].signature) is None:
        return None, None
    return signature.in_spec, of_user(signature.out_spec)


def held_value(program: ExportedProgram, spec: InputSpec) -> Any:
    """Return the parameter, the (persistent or non-persistent) buffer or the constant of an input's ``spec``."""
    assert spec.target is not None
    tensor = program.state_dict.get(spec.target)
    return program.constants[spec.target] if tensor is None else tensor


def mutated_state(program: ExportedProgram) -> set[str]:
    """Return the names, in the state dict, of the parameters and buffers that ``program`` mutates."""
    outputs = program.graph_signature.output_specs
    return {spec.target for spec in outputs if spec.target and spec.kind in MUTATED_STATE}


MUTATED_STATE = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
"""Kinds of results that are new values of parameters and buffers."""


def is_weight(spec: InputSpec, tensor: torch.Tensor) -> bool:
    """Return whether ``tensor``, the value of ``spec``, may be stored outside of a module, under its name.

    It is in the state dict, or is a meta tensor.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized or not tensor.numel():
        return False
    kept = spec.kind is InputKind.PARAMETER or (spec.kind is InputKind.BUFFER and spec.persistent is not False)
    return kept or tensor.is_meta


def weight_names(program: ExportedProgram) -> set[str]:
    """Return the names of the tensors of ``program`` that may be stored outside of a module."""
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind in _HELD and spec.target is not None]
    return {spec.target for spec in specs if spec.target and is_weight(spec, held_value(program, spec))}


_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def storage_key(tensor: torch.Tensor) -> int:
    """Return a key of the storage of ``tensor``, unique while the storage exists."""
    storage = tensor.untyped_storage()
    if storage.device.type == "meta":  # it has no address, and ``data_ptr`` of a fake tensor raises
        return storage._cdata
    return storage.data_ptr() or storage._cdata


def storage_view_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the key of a storage view: storage, offset, shape, strides, dtype."""
    return storage_key(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def as_node_dtype(node: fx.Node, tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor``, a value that the program holds, in the dtype of its placeholder ``node``.

    Where dtypes differ, it is a bitcast, or the real and imaginary parts along a new last axis.
    """
    example = node.meta.get("val")
    if not isinstance(example, torch.Tensor) or example.dtype == tensor.dtype:
        return tensor
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor.view(example.dtype)


def with_own_meta_storages(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with a storage for each weight on the meta device.

    torch.export.load gives one storage to all that it reads, by their address, 0: they would look like one weight. The
    same tensor under two names stays the same.
    """
    first: dict[Any, torch.Tensor] = {}
    changed = {
        name: torch.empty_like(meta)
        for name, meta in program.state_dict.items()
        if isinstance(meta, torch.Tensor) and meta.is_meta and first.setdefault(storage_key(meta), meta) is not meta
    }
    return with_tensors(program, changed) if changed else program


def with_tensors(program: ExportedProgram, tensors: Mapping[str, torch.Tensor]) -> ExportedProgram:
    """Return a copy of ``program`` with the state and constants in ``tensors`` replaced; types must agree."""
    changed = copy.copy(program)
    changed._state_dict = {name: tensors.get(name, tensor) for name, tensor in program.state_dict.items()}
    changed._constants = {name: tensors.get(name, constant) for name, constant in program.constants.items()}
    return changed


def rename_state(program: ExportedProgram, names: Mapping[str, str]) -> ExportedProgram:
    """Return a copy of ``program`` with other names of tensors in its state dict, by those they had.

    They must be tensors that it only reads.
    """
    signature = copy.deepcopy(program.graph_signature)
    for spec in signature.input_specs:
        if spec.target is not None and spec.kind in _HELD:
            spec.target = names.get(spec.target, spec.target)
    changed = copy.copy(program)
    changed._graph_signature = signature
    changed._state_dict = {names.get(name, name): tensor for name, tensor in program.state_dict.items()}
    return changed


def empty_on(
    tensor: torch.Tensor,
    device: torch.device,
    mode: FakeTensorMode | None = None,
    *,
    memory: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return an empty tensor with the dtype, shape and strides of ``tensor`` on ``device``; a fake one with ``mode``.

    If ``memory`` (bytes) is given, the result is a view of it, at the storage offset of ``tensor``.
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
    """Return the fake mode of the example values of ``graph``; None if it has none."""
    leaves = (leaf for node in graph.nodes for leaf in tree_leaves(node.meta.get("val")))
    return next((leaf.fake_mode for leaf in leaves if isinstance(leaf, FakeTensor)), None)


def is_empty(value: object) -> bool:
    """Return whether ``value``, the example value of a node, is a strided tensor with a static size of zero."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return all(isinstance(size, int) for size in value.shape) and 0 in value.shape


def add_examples(graph: fx.Graph) -> None:
    """Give nodes that have only ``tensor_meta``, as `torch.fx.passes.shape_prop.ShapeProp` adds it, example values.

    These are meta tensors, in ``node.meta["val"]``. Nodes whose sizes are symbolic are left as they are.
    """
    for node in graph.nodes:
        if "val" not in node.meta and (entry := node.meta.get("tensor_meta")) is not None:
            several = isinstance(entry, list | tuple) and not isinstance(entry, TensorMetadata)
            examples = [_example(item) for item in (entry if several else [entry])]
            if all(example is not None for example in examples):
                node.meta["val"] = tuple(examples) if several else examples[0]


def _example(entry: Any) -> torch.Tensor | None:
    if not isinstance(entry, TensorMetadata) or not all(type(size) is int for size in (*entry.shape, *entry.stride)):
        return None
    return torch.empty_strided(entry.shape, entry.stride, dtype=entry.dtype, device="meta")


_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"  # export's module name for nodes that it added itself


def module_name(node: fx.Node) -> str | None:
    """Return the qualified name of the innermost module that ``node`` was traced in; None for the root module."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return None
    name = next(reversed(stack.values()))[0]
    return None if name == _NO_MODULE else _qualified(name) or None


def module_classes(node: fx.Node) -> Iterator[tuple[str, str]]:
    """Yield the qualified name and the class name of each module that ``node`` was traced in, the model's as ``""``."""
    for name, kind in (node.meta.get("nn_module_stack") or {}).values():
        if name != _NO_MODULE:
            yield _qualified(name), (kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]


def _qualified(name: str) -> str:
    return name.removeprefix("L['self'].").removeprefix("L['self']")
