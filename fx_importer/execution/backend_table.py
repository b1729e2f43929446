"""Which backend runs what."""

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
"""What runs a module, by name. ``eager`` needs the programs, and is not among them."""

RUNS: Mapping[OutputType, tuple[str, ...]] = {
    OutputType.LINALG_ON_TENSORS: ("jit", "iree"),
    OutputType.STABLEHLO: ("stablehlo", "jit", "xla", "iree"),
    OutputType.TOSA: ("tosa_reference", "jit", "iree"),
    OutputType.TORCH: ("iree",),
}
"""Which backends run an output type, and those of users that are made of it."""

DEFAULTS: Mapping[OutputType, str] = {
    OutputType.LINALG_ON_TENSORS: "jit",
    OutputType.STABLEHLO: "stablehlo",
    OutputType.TOSA: "tosa_reference",
}
"""Which one runs it unless told otherwise."""

ISOLATED = frozenset(("stablehlo", "tosa_reference"))
"""Backends that run each call in a process of its own already."""


def backend_named(name: str, stubs: Mapping[str, Callable[..., Any]] = MappingProxyType({})) -> Backend:
    """Return the backend ``name``; raises `UsageError` with the accepted names.

    ``stubs`` are what PyTorch runs instead of operators, by name, where the backend has it run them.
    """
    if name not in BACKENDS:
        raise UsageError(f"unknown backend {name!r}: accepted are {', '.join(map(repr, BACKENDS))}, and 'eager'")
    return JitBackend(stubs=stubs) if name == STUB_BACKEND else BACKENDS[name]()


STUB_BACKEND = "jit"
"""The backend that has PyTorch run what a module only declares: in this process, which has the operators. It also runs
modules of several output types."""


def default_for(manifest: Manifest) -> str:
    """Return the name of what runs a module unless told otherwise; raises `UsageError` where nothing does."""
    output_type = OutputType.get(manifest.output_type)
    if output_type.root not in DEFAULTS:
        runs = ", ".join(each.value for each in DEFAULTS)
        raise UsageError(
            f"no backend runs {output_type.value} by itself: lower to one of {runs}, or pass backend='eager' to run "
            "the program in PyTorch"
        )
    return STUB_BACKEND if manifest.operator_stubs or manifest.fallback else DEFAULTS[output_type.root]
