"""Devices of XLA, and where on them the arguments and results of a program are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from fx_importer.distributed import Mesh
from fx_importer.distributed.shardings import take_shardings
from fx_importer.engines.xla.engine import XLA_ENGINE
from fx_importer.engines.xla.stablehlo_loader import ArtifactError, device_named
from fx_importer.engines.xla.xla_processes import among_processes
from fx_importer.errors import UsageError
from fx_importer.fx_graph.function_signature import Sharding
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.functions import functions_of


@dataclass(frozen=True)
class Placement:
    """Places of tensors, as jax's ``Sharding``."""

    arguments: tuple[Any, ...]
    results: tuple[Any, ...]
    """None where the partitioner chooses."""
    whole: Any
    """That of weights in the module: on one device, or repeated on all."""
    devices: int = 1
    weights: frozenset[int] = frozenset()
    """Positions of arguments that are weights."""


HOST = "cpu"
"""jax's platform that every installation has."""


def placement_of(module: ir.Module, mesh: Mesh | None, arguments: int, results: int, platform: str = HOST) -> Placement:
    """Return where the tensors of the function ``main`` are, and remove its shardings, which jax writes again.

    Args:
        module: with the single public function ``main``.
        mesh: the mesh of a program of whole tensors; None for one device.
        arguments: the number of arguments of the function.
        results: the number of results.
        platform: the device as `device_of` takes it; a program of whole tensors is placed on the host.

    Raises `UsageError` if XLA has fewer devices in this process than a program of whole tensors is divided among.
    """
    jax = XLA_ENGINE.imported("jax")
    if mesh is None:
        (device,) = host_devices(1) if platform == HOST else [device_of(platform)]
        single = jax.sharding.SingleDeviceSharding(device)
        return Placement((single,) * arguments, (single,) * results, single)
    names, sizes = zip(*mesh.axes, strict=True)
    devices = jax.sharding.Mesh(np.array(host_devices(mesh.size)).reshape(sizes), names)
    weights = weight_positions(functions_of(module)["main"])
    shardings = take_shardings(module)["main"]

    def place(sharding: Sharding | None) -> Any:
        spec = jax.sharding.PartitionSpec(*(axes or None for axes in sharding or ()))
        return jax.sharding.NamedSharding(devices, spec)

    places = [None if sharding is None else place(sharding) for sharding in shardings[1]]
    return Placement(tuple(map(place, shardings[0])), tuple(places), place(None), mesh.size, weights)


def weight_positions(function: func_d.FuncOp) -> frozenset[int]:
    """Return the positions of the arguments that are weights."""
    if "arg_attrs" not in function.attributes:
        return frozenset()
    attributes = ir.ArrayAttr(function.attributes["arg_attrs"])
    return frozenset(at for at, entry in enumerate(map(ir.DictAttr, attributes)) if "fx_importer.weight" in entry)


def device_of(name: str) -> Any:
    """Return the device of a platform that a plug-in of jax brings, with or without an index: ``"cuda"``, ``"cuda:1"``.

    Raises:
        UsageError: if jax does not have the platform here, or no device of that index.
    """
    with artifact_errors():
        return device_named(name)


@contextmanager
def artifact_errors() -> Iterator[None]:
    """Turn an `ArtifactError` of the loader, which knows none of ours, into a `UsageError`."""
    try:
        yield
    except ArtifactError as error:
        raise UsageError(str(error)) from error


def whole_array(array: Any) -> Any:
    """Return an array of jax that this process has the whole of. All processes call it, if some have parts only."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return array
    with among_processes():
        return XLA_ENGINE.imported("jax.experimental.multihost_utils").process_allgather(array, tiled=True)


def host_devices(count: int) -> Sequence[Any]:
    """Return ``count`` devices of the host. Raises `UsageError` if XLA was started with fewer."""
    jax = XLA_ENGINE.imported("jax")
    backends = XLA_ENGINE.imported("jax.extend.backend")
    joined = jax.distributed.is_initialized()
    if count > 1 and not joined and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        with suppress(RuntimeError):  # of XLA that has started, with a number of devices that stays
            jax.config.update("jax_num_cpu_devices", max(count, jax.config.jax_num_cpu_devices))
    devices = backends.get_backend("cpu").devices()  # of all processes, in the order of their ranks
    if joined and len(devices) != count > 1:
        raise UsageError(
            f"the mesh has {count} devices, and the {jax.process_count()} processes have {len(devices)}: a mesh over "
            "several processes has all devices"
        )
    if count == 1:
        return backends.get_backend("cpu").local_devices()[:1]
    if len(devices) < count:
        raise UsageError(
            f"the mesh has {count} devices, and XLA was started with {len(devices)} in this process: start Python with "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count}, or run this program before others on XLA"
        )
    return devices[:count]
