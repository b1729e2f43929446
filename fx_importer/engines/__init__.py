"""Backends that run lowered modules, and the calling convention of the model."""

from fx_importer.calls.backend import Backend, Loaded, Value
from fx_importer.calls.caller import Caller
from fx_importer.engines.backend_table import (
    BACKENDS,
    ISOLATED,
    STUB_BACKEND,
    backend_named,
)
from fx_importer.engines.eager.eager_backend import EagerBackend
from fx_importer.engines.iree.iree_backend import IreeBackend
from fx_importer.engines.isolated_backend import IsolatedBackend, Worker
from fx_importer.engines.jit.jit_backend import JitBackend
from fx_importer.engines.stablehlo_interpreter.stablehlo_backend import StablehloBackend
from fx_importer.engines.tosa_reference.tosa_reference_backend import TosaReferenceBackend
from fx_importer.engines.xla.xla_backend import XlaBackend
from fx_importer.engines.xla.xla_processes import join_processes

__all__ = [
    "BACKENDS",
    "ISOLATED",
    "STUB_BACKEND",
    "Backend",
    "Caller",
    "EagerBackend",
    "IreeBackend",
    "IsolatedBackend",
    "JitBackend",
    "Loaded",
    "StablehloBackend",
    "TosaReferenceBackend",
    "Value",
    "Worker",
    "XlaBackend",
    "backend_named",
    "join_processes",
]
