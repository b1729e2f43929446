"""Aliased inputs: tensors that share memory with other inputs, parameters or buffers.

torch.export merges two inputs that are the same tensor, and torch's passes silently fail on mutations of memory with
two names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node_at
from fx_importer.errors import UnsupportedNode, UnsupportedProgramError
from fx_importer.frontend.example_inputs import state_of
from fx_importer.fx_graph.aliasing import mutated_placeholders, view_bases
from fx_importer.fx_graph.programs import storage_key


def without_aliases(
    args: Sequence[Any], kwargs: Mapping[str, Any], module: torch.nn.Module
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the inputs with a copy of each tensor that aliases an earlier one or the module's state.

    The exported program then reads each of its inputs, as needed for inputs that are different tensors. Tensors without
    elements are copied too: torch.export takes the sizes of others for dynamic that share memory with them.
    """
    seen: dict[int, list[torch.Tensor]] = {}  # by memory

    def is_new(tensor: torch.Tensor) -> bool:
        there = seen.setdefault(storage_key(tensor), [])
        new = not any(_overlap(tensor, other) for other in there)
        there.append(tensor)
        return new

    def apart(leaf: Any) -> Any:
        if not _is_dense(leaf) or (_has_memory(leaf) and is_new(leaf)):
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    for tensor in state_of(module).values():
        if _has_memory(tensor):
            is_new(tensor)

    separated = pytree.tree_map(apart, (tuple(args), dict(kwargs)))
    return separated[0], separated[1]


def check_aliased_mutations(program: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise `UnsupportedProgramError` listing the aliased inputs, parameters and buffers that ``program`` mutates.

    ``args`` and ``kwargs`` are the inputs of the export, if known.
    """
    written = dict(mutated_placeholders(program.graph))
    if not written:
        return
    tensors = dict(_tensors(program, args, kwargs))
    names_by_storage: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        names_by_storage.setdefault(storage_key(tensor), []).append(name)
    unsupported_nodes: list[UnsupportedNode] = []
    for spec in program.graph_signature.input_specs:
        name = spec.arg.name
        if name not in written or name not in tensors:
            continue
        there = names_by_storage[storage_key(tensors[name])]
        if others := [other for other in there if other != name and _overlap(tensors[name], tensors[other])]:
            shared = " and ".join(_describe(program, other) for other in others)
            reason = f"the program writes to {_describe(program, name)}, which shares memory with {shared}"
            unsupported_nodes.append(unsupported_node_at(written[name], spec.target or name, reason))
    if unsupported_nodes:
        raise UnsupportedProgramError(
            "the program changes memory in a way that a function of values cannot. Inputs of its own for each name "
            "(`.clone()`), and a buffer that is registered once, can be changed:",
            unsupported_nodes,
        )


def _describe(program: ExportedProgram, name: str) -> str:
    spec = next(spec for spec in program.graph_signature.input_specs if spec.arg.name == name)
    return f"the {_KINDS.get(spec.kind, 'input')} '{spec.target or name}'"


_OUTPUTS = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
_KINDS = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer"}


def aliases_of_written(program: ExportedProgram) -> dict[int, str]:
    """Return the written input or state that an output is or is a view of, by the output's leaf.

    A functional program, which has no operators that write, does not show it.
    """
    written = {name for name, _ in mutated_placeholders(program.graph)}
    names = {spec.arg.name: spec.target or spec.arg.name for spec in program.graph_signature.input_specs}
    outputs = [spec for spec in program.graph_signature.output_specs if spec.kind in _OUTPUTS]
    returned: Any = program.graph.output_node().args[0]
    values = returned[len(returned) - len(outputs) :]  # after new values of state
    aliases: dict[int, str] = {}
    for leaf, value in enumerate(values):
        bases = list(view_bases(value)) if isinstance(value, fx.Node) else []
        for base in bases:
            if base.name in written and _dtype(base) == _dtype(value):
                aliases[leaf] = names[base.name]
    return aliases


def _dtype(node: fx.Node) -> torch.dtype | None:
    return getattr(node.meta.get("val"), "dtype", None)


def _tensors(
    program: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name and tensor of each placeholder that has memory."""
    expected = program.call_spec.in_spec
    order = expected.child(1).context if expected is not None else []
    leaves = iter(pytree.tree_leaves((tuple(args), {name: kwargs[name] for name in order if name in kwargs})))
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            tensor = next(leaves, None)
        else:
            target = spec.target or ""
            tensor = program.state_dict.get(target, program.constants.get(target))
        if _has_memory(tensor):
            yield spec.arg.name, tensor


def _has_memory(value: Any) -> TypeGuard[torch.Tensor]:
    """Return whether ``value`` is a dense tensor with elements; meta and fake tensors count."""
    return _is_dense(value) and value.numel() > 0


def _is_dense(value: Any) -> TypeGuard[torch.Tensor]:
    known = torch.Tensor, torch.nn.Parameter, FakeTensor  # other subclasses wrap tensors that have memory
    return type(value) in known and value.layout is torch.strided


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether the byte ranges of two tensors overlap. Strided tensors in them may still be disjoint."""
    if storage_key(one) != storage_key(other):
        return False
    (start, stop), (other_start, other_stop) = _byte_range(one), _byte_range(other)
    return start < other_stop and other_start < stop


def _byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    first = int(tensor.storage_offset())
    last = first + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first * tensor.element_size(), (last + 1) * tensor.element_size()
