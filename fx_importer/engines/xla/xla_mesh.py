"""Running the program of each device of a mesh on devices of XLA, in one process; weights stay on the devices."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch

from fx_importer.calls.argument_values import DenseArguments
from fx_importer.calls.backend import Value
from fx_importer.calls.call_signature import Signature, TensorKind, read_signature
from fx_importer.calls.memref import dense
from fx_importer.calls.specialization import is_dynamic
from fx_importer.diagnostics.trace import Trace
from fx_importer.distributed.module_attributes import mesh_of
from fx_importer.engines.function_extraction import check_dialects, copied_function
from fx_importer.engines.xla.engine import XLA_ENGINE
from fx_importer.engines.xla.xla_devices import host_devices, weight_positions
from fx_importer.engines.xla.xla_processes import among_processes
from fx_importer.engines.xla.xla_program import XLA, artifact_function, as_array, as_tensor
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.constant_arguments import take_resources
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.walk import operations


def load_on_mesh(module: ir.Module, func_name: str = "main") -> FunctionOnMesh:
    """Compile the function ``func_name`` of ``module`` for one device of XLA on the host for each rank.

    Raises:
        NotInstalledError: without ``jax`` and ``jaxlib``.
        UsageError: if the module has no mesh, no function has that name, it has dynamic sizes or operations of other
            dialects, or XLA has fewer devices in this process.
        StageFailed: if the module cannot be serialized to an artifact, or XLA cannot compile it.
    """
    XLA_ENGINE.check_installed()
    mesh = mesh_of(module)
    if mesh is None:
        raise UsageError("the module runs on one device: lower the program with mesh= to run it on several")
    copy, function = copied_function(module, func_name)
    signature = read_signature(function, XLA)
    check_dialects(copy, ("builtin", "func", "stablehlo"), XLA)
    if is_dynamic(signature):
        raise UsageError(f"'{func_name}' has dynamic sizes: on a mesh, sizes are static")
    devices = host_devices(mesh.size)
    with Trace().stage("constants"):
        weights = take_resources(function, "stablehlo.constant", XLA.dtypes)
    for op in operations(copy.operation, ("stablehlo.collective_broadcast",)):
        _gather_instead(op)
    return FunctionOnMesh(copy, signature, weights, devices, weight_positions(function))


class FunctionOnMesh:
    """Compiled code, and the weights that all devices share. It takes the arguments of the ranks of this process."""

    def __init__(
        self,
        module: ir.Module,
        signature: Signature,
        weights: Sequence[torch.Tensor],
        devices: Sequence[Any],
        positions: frozenset[int],
    ):
        jax = XLA_ENGINE.imported("jax")
        self.signature, self._jax = signature, jax
        self.ranks: list[int] = [
            rank for rank, device in enumerate(devices) if device.process_index == jax.process_index()
        ]
        self._size, self._devices = len(devices), [devices[rank] for rank in self.ranks]
        self._arguments = DenseArguments(signature)
        own = [partial(_on_device, jax, device) for device in self._devices]
        self._put: list[Sequence[Callable[[Any], Any]]] = [
            [PlacedWeight(("part", value.args[1]), value) for value in own] if at in positions else own
            for at in range(len(signature.arguments))
        ]
        """For each argument, what puts the part of each rank on its device."""
        mesh = jax.sharding.Mesh(np.array(devices), ("device",))
        spec, same = jax.sharding.PartitionSpec("device"), jax.sharding.PartitionSpec()
        self._placed = jax.sharding.NamedSharding(mesh, spec)
        call, count = artifact_function(module), len(signature.arguments)

        def program(*arrays: Any) -> Any:
            """Call the program with arrays that have a first axis of size 1, the part of this device."""
            own = [array[0] for array in arrays[:count]]
            return [result[None] for result in call(*own, *arrays[count:])]

        with Trace().stage("xla-compile"), jax.enable_x64(True):
            shared = jax.sharding.NamedSharding(mesh, same)
            self._weights = [jax.device_put(as_array(weight), shared) for weight in weights]
            specs = (*[spec] * count, *[same] * len(weights))
            mapped = jax.shard_map(program, mesh=mesh, in_specs=specs, out_specs=spec, check_vma=False)
            self._program = jax.jit(mapped, keep_unused=True)

    def __call__(self, ranks: Sequence[Sequence[Value]]) -> list[tuple[torch.Tensor, ...]]:
        by_rank = [self._arguments(arguments) for arguments in ranks]
        with self._jax.enable_x64(True):
            arrays = [self._array(*value) for value in zip(self._put, zip(*by_rank, strict=True), strict=True)]
            with Trace().stage("xla"), among_processes():
                results = self._jax.block_until_ready(self._program(*arrays, *self._weights))
        dtypes = [kind.dtypes[0] for kind in self.signature.results if isinstance(kind, TensorKind)]
        tensors_ = [self._tensors(*result) for result in zip(results, dtypes, strict=True)]
        return [tuple(tensors[at] for tensors in tensors_) for at in range(len(self._devices))]

    def _array(self, put: Sequence[Callable[[Any], Any]], parts: Sequence[Any]) -> Any:
        """Return an array with a part on each device."""
        placed = [on_device(part) for on_device, part in zip(put, parts, strict=True)]
        shape = (self._size, *placed[0].shape[1:])
        return self._jax.make_array_from_single_device_arrays(shape, self._placed, placed)

    def _tensors(self, array: Any, dtype: torch.dtype) -> list[torch.Tensor]:
        """Return the part of each device."""
        parts = {shard.device: shard.data for shard in array.addressable_shards}
        return [as_tensor(parts[device], dtype)[0] for device in self._devices]


def _on_device(jax: Any, device: Any, part: torch.Tensor) -> Any:
    """Return an array with a first axis of size 1."""
    return jax.device_put(as_array(dense(part))[None], device)


def _gather_instead(op: ir.Operation) -> None:
    """Replace a broadcast from the first device of each group by the first gathered part: XLA 0.10 lacks it on CPUs."""
    emit = StablehloOps.before(op)
    x = op.operands[0]
    sizes, element = emit.shape(x), emit.element(x)
    count = ir.ShapedType(op.attributes["replica_groups"].type).shape[1]
    part = emit.tensor((1, *sizes), element)
    attributes = {
        "all_gather_dim": emit.i64(0),
        "replica_groups": op.attributes["replica_groups"],
        "channel_handle": op.attributes["channel_handle"],
        "use_global_device_ids": ir.UnitAttr.get(emit.context),
    }
    whole = emit.tensor((count, *sizes), element)
    gathered = emit.op("stablehlo.all_gather", [whole], [emit.stablehlo("reshape", part, x)], attributes).result
    bounds = {
        "start_indices": emit.array([0] * (len(sizes) + 1)),
        "limit_indices": emit.array([1, *(size or 0 for size in sizes)]),
        "strides": emit.array([1] * (len(sizes) + 1)),
    }
    first = emit.op("stablehlo.slice", [part], [gathered], bounds).result
    replace(op, emit.stablehlo("reshape", x.type, first))


@dataclass(frozen=True, eq=False)
class _OnDevices:
    tensor: torch.Tensor  # as long as it lives, no other has its id
    version: int
    array: Any


_PLACED: WeakValueDictionary[tuple[int, Hashable], _OnDevices] = WeakValueDictionary()
"""By tensor and place, what functions have put on devices: prefill and decode of a model share its weights."""


class PlacedWeight:
    """Puts a weight on devices, if it is another tensor than in the call before, or has changed.

    A change in place shows in the counters that PyTorch has for autograd; ``.data`` has none.

    Args:
        place: where ``put`` puts it, and in which form.
        put: takes the tensor, and returns an array of jax.
    """

    def __init__(self, sharding: Hashable, put: Callable[[torch.Tensor], Any]):
        self._place, self._put = sharding, put
        self._held: _OnDevices | None = None

    def __call__(self, tensor: torch.Tensor) -> Any:
        with among_processes():
            if tensor.is_inference():  # has no counter
                return self._put(tensor)
            if not _is_current(self._held, tensor):
                key = id(tensor), self._place
                self._held = _PLACED.get(key)
                if not _is_current(self._held, tensor):
                    self._held = _PLACED[key] = _OnDevices(tensor, tensor._version, self._put(tensor))
            assert self._held is not None
            return self._held.array


def _is_current(copy: _OnDevices | None, tensor: torch.Tensor) -> bool:
    return copy is not None and copy.tensor is tensor and copy.version == tensor._version
