"""Names of devices, as users pass them: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"rocm"``."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fx_importer.engines.engine_table import engine_named, engines_for, module_engines
from fx_importer.errors import UsageError
from fx_importer.output_types import OutputType

CPU = "cpu"
"""The device of the host."""


def engine_on(device: str, output_type: OutputType | None, backend: object = None) -> str:
    """Return the name of the engine that runs ``output_type``, by default any, on ``device``.

    Raises:
        UsageError: if there is none, ``backend`` does not run there, or PyTorch has no such device.
    """
    platform = device.partition(":")[0]
    if backend is not None and not isinstance(backend, str):
        raise UsageError(f"device='{device}' goes with the name of a backend, and not with one that is made already")
    if not (there := [engine.name for engine in module_engines() if platform in engine.devices]):
        platforms = dict.fromkeys(name for engine in module_engines() for name in engine.devices)
        raise UsageError(f"no engine runs on '{platform}': accepted are {', '.join(map(repr, platforms))}")
    runs = (
        there if output_type is None else [engine.name for engine in engines_for(output_type) if engine.name in there]
    )
    if backend is not None and backend not in there:
        engine_named(backend)
        raise UsageError(f"the backend {backend!r} does not run on '{platform}': {_listed(there)}")
    if not runs:
        kind = output_type.value if output_type else "modules"
        types = " or ".join(sorted({kind.value for name in there for kind in engine_named(name).accepts}))
        raise UsageError(
            f"no engine runs {kind} on '{platform}': {_listed(there)}, which take{'s' * (len(there) == 1)} {types}"
        )
    torch_device_named(device)
    return backend or runs[0]


def _listed(engines: Sequence[str]) -> str:
    return f"{' and '.join(map(repr, engines))} can"


def torch_device_named(device: str) -> torch.device:
    """Return PyTorch's device of a name such as ``"cuda:1"``. Raises `UsageError` if it is not there."""
    platform, _, index = device.partition(":")
    if not platform or (index and not index.isdecimal()):
        raise UsageError(f"'{device}' names no device: accepted are 'cpu', 'cuda' and 'cuda:1'")
    kind = "cuda" if platform == "rocm" else platform  # PyTorch's name of AMD's devices
    try:
        count = torch.get_device_module(kind).device_count()
    except RuntimeError:  # PyTorch knows no such devices
        count = 0
    if count <= int(index or 0):
        raise UsageError(
            f"PyTorch has no device '{device}' here: it has {count} of '{platform}'. Its tensors there are what the "
            "functions take and return: they need a PyTorch that is built for it, and its driver"
        )
    return torch.device(kind) if kind == CPU else torch.device(kind, int(index or 0))


def platform_of(device: torch.device) -> str:
    """Return the name by which `torch_device_named` returns ``device``."""
    kind = "rocm" if device.type == "cuda" and torch.version.hip else device.type
    return kind if device.index is None else f"{kind}:{device.index}"
