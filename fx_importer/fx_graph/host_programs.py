"""Programs on the CPU: lowering needs no device, so a program that was captured on a GPU is lowered on any machine.

MLIR has no devices: only numbers, of which the weights are read on the host.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from fx_importer.fx_graph.programs import empty_on, storage_key, with_rewritten_graphs

_CPU, _META = torch.device("cpu"), torch.device("meta")
_AUTOCAST = torch.ops.higher_order.wrap_with_autocast
_AUTOCAST_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""What autocast casts from and to."""


def on_host(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` on the CPU: devices in its graphs, and its weights. Fake weights move to the meta device.

    Weights that share memory do so afterwards. The given program is not changed.
    """
    if any(_names_device(node) for module in _modules(program) for node in module.graph.nodes):
        regions = _autocast_regions(program)

        def move(graph: fx.Graph, owner: fx.GraphModule) -> None:
            _move_graph(graph)
            if owner in regions:
                _cast_as_recorded(graph)

        program = with_rewritten_graphs(program, move)
    tensors = pytree.tree_leaves((program.state_dict, program.constants, program.example_inputs))
    if all(is_on_host(value) for value in tensors):
        return program
    weights = HostTensors()
    changed = copy.copy(program)
    changed._state_dict = {name: weights(tensor) for name, tensor in program.state_dict.items()}
    changed._constants = {name: weights(constant) for name, constant in program.constants.items()}
    changed._example_inputs = pytree.tree_map(weights, program.example_inputs)
    return changed


def _modules(program: ExportedProgram) -> Iterator[fx.GraphModule]:
    return (module for module in program.graph_module.modules() if isinstance(module, fx.GraphModule))


def _names_device(node: fx.Node) -> bool:
    """Return whether ``node`` is an input on a device, or has one among its arguments."""
    if _is_autocast(node):
        return True
    if node.op == "placeholder":
        leaves = pytree.tree_leaves(node.meta.get("val"))
        return any(isinstance(leaf, Tensor) and leaf.device != _CPU for leaf in leaves)
    return any(type(value) is torch.device and value != _CPU for value in (*node.args, *node.kwargs.values()))


def _move_graph(graph: fx.Graph) -> None:
    """Move devices and example values of ``graph`` to the CPU."""

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return _CPU
        if isinstance(value, FakeTensor) and value.device != _CPU:
            return empty_on(value, _CPU, value.fake_mode)
        return value

    for node in graph.nodes:
        if _is_autocast(node):
            node.args = ("cpu", node.args[1], False, *node.args[3:])
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(moved, node.meta["val"])
        node.args, node.kwargs = map_aggregate(node.args, moved), map_aggregate(node.kwargs, moved)


def _is_autocast(node: fx.Node) -> bool:
    """Return whether ``node`` runs a region under the autocast of another device than the CPU."""
    return node.target is _AUTOCAST and node.args[0] != "cpu" and bool(node.args[2])


def _autocast_regions(program: ExportedProgram) -> set[fx.GraphModule]:
    """Return the regions under the autocast of another device, and those inside of them."""
    roots = [
        getattr(module, node.args[4].target)
        for module in _modules(program)
        for node in module.graph.find_nodes(op="call_function", target=_AUTOCAST)
        if _is_autocast(node)
    ]
    return {module for root in roots for module in root.modules() if isinstance(module, fx.GraphModule)}


def _cast_as_recorded(graph: fx.Graph) -> None:
    """Cast the operands in a region of autocast explicitly, whose rules differ from the CPU's.

    An operator that computes in another dtype than its operands has recorded that of its result: autocast has cast
    them to it.
    """
    for node in graph.nodes:
        recorded = _first_dtype(node.meta.get("val"))
        if not isinstance(node.target, torch._ops.OpOverload) or recorded not in _AUTOCAST_DTYPES:
            continue
        operands = [
            source for source in node.all_input_nodes if _first_dtype(source.meta.get("val")) in _AUTOCAST_DTYPES
        ]
        if not operands or _dtype_without_autocast(node) is recorded:
            continue
        for operand in operands:
            value = operand.meta["val"]
            if isinstance(value, FakeTensor) and value.dtype is not recorded:
                with graph.inserting_before(node):
                    cast = graph.call_function(torch.ops.aten.to.dtype, (operand, recorded))
                cast.meta = {**node.meta, "val": value.to(recorded)}
                node.replace_input_with(operand, cast)


def _dtype_without_autocast(node: fx.Node) -> torch.dtype | None:
    """Return the dtype of the first result of ``node``, evaluated with its operands' examples; None if that fails."""
    args, kwargs = map_aggregate(
        (node.args, node.kwargs), lambda argument: argument.meta["val"] if isinstance(argument, fx.Node) else argument
    )
    operator: Any = node.target
    try:
        return _first_dtype(operator(*args, **kwargs))
    except RuntimeError:  # operands of several dtypes
        return None


def _first_dtype(value: Any) -> torch.dtype | None:
    return next((leaf.dtype for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)), None)


def is_on_host(value: object) -> bool:
    """Return whether ``value`` is on the CPU or the meta device and not fake, or not a tensor."""
    if not isinstance(value, Tensor):
        return True
    return not isinstance(value, FakeTensor) and value.device in (_CPU, _META)


class HostTensors:
    """A function that copies tensors from devices to the CPU, and makes meta tensors of fake ones.

    One tensor stays one, and tensors that share memory do so afterwards.
    """

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Tensor]] = {}  # with the original, which keeps its id() taken
        self._memories: dict[tuple[torch.device, int], Tensor] = {}

    def __call__(self, value: Any) -> Any:
        if is_on_host(value):
            return value
        if id(value) not in self._made:
            self._made[id(value)] = value, self._moved(value)
        return self._made[id(value)][1]

    def _moved(self, tensor: Tensor) -> Tensor:
        if type(tensor) not in (Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor):
            return tensor.to(_CPU)
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
            return tensor.detach().to(_CPU)
        key = tensor.device, storage_key(tensor)
        if key not in self._memories:
            self._memories[key] = _memory_of(tensor)
        memory = self._memories[key]
        with torch.no_grad():
            return empty_on(tensor, memory.device, memory=memory)


def _memory_of(tensor: Tensor) -> Tensor:
    """Return the bytes of the memory of ``tensor``, copied to the CPU; without values, on the meta device."""
    if isinstance(tensor, FakeTensor):
        return torch.empty(tensor.untyped_storage().nbytes(), dtype=torch.uint8, device=_META)
    storage = tensor.detach().untyped_storage()
    return torch.empty(0, dtype=torch.uint8).set_(storage.cpu())
