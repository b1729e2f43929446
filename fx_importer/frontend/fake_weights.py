"""Fake and meta tensors: export of modules that were built on the meta device or under FakeTensorMode.

Such a module is exported as on the CPU, but its weights are on the meta device: they have shapes and dtypes, and no
values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from fx_importer.fx_graph.programs import empty_on, storage_key, with_rewritten_graphs, with_tensors

_CPU, _META = torch.device("cpu"), torch.device("meta")


def is_fake_or_meta(value: object) -> bool:
    """Return whether ``value`` is a fake or meta tensor."""
    return isinstance(value, FakeTensor) or (isinstance(value, Tensor) and value.is_meta)


@contextmanager
def on_fake_cpu(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], Callable[[ExportedProgram], ExportedProgram]]]:
    """Replace fake and meta tensors of the inputs and of ``module`` by fake CPU tensors during the body.

    torch.export would otherwise record the meta device in the program, and fail where two devices meet. Yields args,
    kwargs, and a function that puts the original tensors of ``module``, with their aliasing, back into a program.
    """
    inputs = (tuple(args), dict(kwargs))
    tensors = [*module.parameters(), *module.buffers(), *pytree.tree_leaves(inputs)]
    if not any(map(is_fake_or_meta, tensors)):
        yield *inputs, lambda program: program
        return
    mode = next((tensor.fake_mode for tensor in tensors if isinstance(tensor, FakeTensor)), None) or FakeTensorMode()
    made: dict[int, tuple[Tensor, Any]] = {}  # with the original, which keeps its id() taken

    def fake(tensor: Any) -> Any:
        if not is_fake_or_meta(tensor) or (isinstance(tensor, FakeTensor) and tensor.device == _CPU):
            return tensor
        if id(tensor) not in made:
            made[id(tensor)] = tensor, empty_on(tensor, _CPU, mode)
        return made[id(tensor)][1]

    def restored(program: ExportedProgram) -> ExportedProgram:
        originals = {id(made): tensor for tensor, made in made.values() if not isinstance(tensor, FakeTensor)}
        tensors_by_name = {**program.constants, **program.state_dict}
        return with_tensors(
            program, {name: originals[id(each)] for name, each in tensors_by_name.items() if id(each) in originals}
        )

    places = [
        (tensors_by_name, name, tensor)
        for owner in module.modules()
        for tensors_by_name in (owner._parameters, owner._buffers)
        for name, tensor in tensors_by_name.items()
        if is_fake_or_meta(tensor)
    ]
    for tensors_by_name, name, tensor in places:
        tensors_by_name[name] = fake(tensor)
    try:
        yield *pytree.tree_map(fake, inputs), restored
    finally:
        for tensors_by_name, name, tensor in places:
            tensors_by_name[name] = tensor  # type: ignore[assignment]


def with_meta_weights(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with fake weights on the meta device and everything else on the CPU.

    The given program is not changed.
    """
    on_meta = any(_is_on_meta(node) for node in program.graph.find_nodes(op="placeholder"))
    tensors = pytree.tree_leaves((program.state_dict, program.constants))
    if not on_meta and not any(map(is_fake_or_meta, tensors)):
        return program
    made: dict[int, Tensor] = {}
    memories: dict[int, Tensor] = {}

    def meta(tensor: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            return tensor
        if id(tensor) not in made:  # keep tensor identity and aliasing
            memory = storage_key(tensor)
            if memory not in memories:
                size = tensor.untyped_storage().nbytes()
                memories[memory] = torch.empty(size, dtype=torch.uint8, device=_META)
            made[id(tensor)] = empty_on(tensor, _META, memory=memories[memory])
        return made[id(tensor)]

    if on_meta:
        program = with_rewritten_graphs(program, lambda graph, owner: _move_to_cpu(graph))
    on_meta_device = copy.copy(program)
    on_meta_device._state_dict = {name: meta(each) for name, each in program.state_dict.items()}
    on_meta_device._constants = {name: meta(constant) for name, constant in program.constants.items()}
    on_meta_device._example_inputs = pytree.tree_map(meta, program.example_inputs)
    return on_meta_device


def _move_to_cpu(graph: fx.Graph) -> None:
    """Move devices and example values of ``graph`` from meta to CPU."""

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return _CPU if value == _META else value
        return (
            empty_on(value, _CPU, value.fake_mode) if isinstance(value, FakeTensor) and value.device == _META else value
        )

    for node in graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(moved, node.meta["val"])
        node.args, node.kwargs = map_aggregate(node.args, moved), map_aggregate(node.kwargs, moved)


def _is_on_meta(node: fx.Node) -> bool:
    return any(isinstance(leaf, Tensor) and leaf.is_meta for leaf in pytree.tree_leaves(node.meta.get("val")))
