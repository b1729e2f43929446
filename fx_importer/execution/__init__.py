"""Backends that run lowered modules, and the calling convention of the model."""

from fx_importer.execution.backend import Backend, Loaded, Value
from fx_importer.execution.backend_table import (
    BACKENDS,
    ISOLATED,
    STUB_BACKEND,
    backend_named,
)
from fx_importer.execution.calls.caller import Caller
from fx_importer.execution.eager import EagerBackend
from fx_importer.execution.engines.iree import IreeBackend
from fx_importer.execution.engines.stablehlo_interpreter import StablehloBackend
from fx_importer.execution.engines.tosa_reference import TosaReferenceBackend
from fx_importer.execution.engines.xla import XlaBackend
from fx_importer.execution.engines.xla_processes import join_processes
from fx_importer.execution.isolated_backend import IsolatedBackend, Worker
from fx_importer.execution.jit.jit_backend import JitBackend

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
