"""The table of backends, and of the output types that each runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fx_importer.errors import UsageError
from fx_importer.execution.backend import Backend
from fx_importer.execution.iree import IreeBackend
from fx_importer.execution.jit import JitBackend
from fx_importer.execution.stablehlo_interpreter import StablehloBackend
from fx_importer.execution.tosa_reference import TosaReferenceBackend
from fx_importer.execution.xla import XlaBackend
from fx_importer.manifest import Manifest
from fx_importer.output_types import OutputType

BACKENDS: Mapping[str, Callable[[], Backend]] = {
    "jit": JitBackend,
    "stablehlo": StablehloBackend,
    "tosa_reference": TosaReferenceBackend,
    "iree": IreeBackend,
    "xla": XlaBackend,
}
"""Backends by name, without ``eager``, which needs the programs."""

RUNS: Mapping[OutputType, tuple[str, ...]] = {
    OutputType.LINALG_ON_TENSORS: ("jit", "iree"),
    OutputType.STABLEHLO: ("stablehlo", "jit", "xla", "iree"),
    OutputType.TOSA: ("tosa_reference", "jit", "iree"),
    OutputType.TORCH: ("iree",),
}
"""Backends by output type; they also run output types of users that are based on it."""


def backends_for(output_type: OutputType) -> tuple[str, ...]:
    """Return the names of the backends that run an output type; of a user's own, those of its base."""
    return RUNS.get(output_type.root, ())


DEFAULTS: Mapping[OutputType, str] = {
    OutputType.LINALG_ON_TENSORS: "jit",
    OutputType.STABLEHLO: "stablehlo",
    OutputType.TOSA: "tosa_reference",
}
"""The default backend of each output type."""

ISOLATED = frozenset(("stablehlo", "tosa_reference"))
"""Backends that run each call in a new process."""


def backend_named(name: str, stubs: Mapping[str, Callable[..., Any]] = MappingProxyType({})) -> Backend:
    """Return the backend ``name``. Raises `UsageError` with the accepted names.

    ``stubs`` are functions to call in place of operators, by name, for operator stubs.
    """
    if name not in BACKENDS:
        raise UsageError(f"unknown backend {name!r}: accepted are {', '.join(map(repr, BACKENDS))}, and 'eager'")
    return JitBackend(stubs=stubs) if name == STUB_BACKEND else BACKENDS[name]()


STUB_BACKEND = "jit"
"""The backend that runs operator stubs, in this process, which has the operators. It also runs fallback modules, of
several output types."""


def default_for(manifest: Manifest) -> str:
    """Return the name of the default backend of a module. Raises `UsageError` if there is none."""
    output_type = OutputType.get(manifest.output_type)
    if output_type.root not in DEFAULTS:
        runs = ", ".join(each.value for each in DEFAULTS)
        raise UsageError(
            f"no backend runs {output_type.value} by itself: lower to one of {runs}, or pass backend='eager' to run "
            "the program in PyTorch"
        )
    return STUB_BACKEND if manifest.operator_stubs or manifest.fallback else DEFAULTS[output_type.root]
