"""Backends that run lowered modules, and the calling convention of the model."""

from fx_importer.execution.backend import Backend, Loaded, Value
from fx_importer.execution.backend_table import (
    BACKENDS,
    ISOLATED,
    STUB_BACKEND,
    backend_named,
)
from fx_importer.execution.caller import Caller
from fx_importer.execution.eager import EagerBackend
from fx_importer.execution.iree import IreeBackend
from fx_importer.execution.isolated_backend import IsolatedBackend, Worker
from fx_importer.execution.jit import JitBackend
from fx_importer.execution.stablehlo_interpreter import StablehloBackend
from fx_importer.execution.tosa_reference import TosaReferenceBackend
from fx_importer.execution.xla import XlaBackend

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
]
