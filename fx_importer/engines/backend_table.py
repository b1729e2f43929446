"""The table of backends. A target (`fx_importer.targets`) names those that run its output type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fx_importer.calls.backend import Backend
from fx_importer.engines.iree.iree_backend import IreeBackend
from fx_importer.engines.jit.jit_backend import JitBackend
from fx_importer.engines.stablehlo_interpreter.stablehlo_backend import StablehloBackend
from fx_importer.engines.tosa_reference.tosa_reference_backend import TosaReferenceBackend
from fx_importer.engines.xla.xla_backend import XlaBackend
from fx_importer.errors import UsageError

BACKENDS: Mapping[str, Callable[[], Backend]] = {
    "jit": JitBackend,
    "stablehlo": StablehloBackend,
    "tosa_reference": TosaReferenceBackend,
    "iree": IreeBackend,
    "xla": XlaBackend,
}
"""Backends by name, without ``eager``, which needs the programs."""

ISOLATED = frozenset(("stablehlo", "tosa_reference"))
"""Backends that run each call in a new process."""


def backend_named(
    name: str, stubs: Mapping[str, Callable[..., Any]] = MappingProxyType({}), cache: bool | None = None
) -> Backend:
    """Return the backend ``name``. Raises `UsageError` with the accepted names.

    ``stubs`` are functions to call in place of operators, by name, for operator stubs. ``cache`` is that of the JIT.
    """
    if name not in BACKENDS:
        raise UsageError(f"unknown backend {name!r}: accepted are {', '.join(map(repr, BACKENDS))}, and 'eager'")
    return JitBackend(stubs=stubs, cache=cache) if name == STUB_BACKEND else BACKENDS[name]()


STUB_BACKEND = "jit"
"""The backend that runs operator stubs, in this process, which has the operators. It also runs fallback modules, of
several output types."""
