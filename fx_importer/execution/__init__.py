"""Runs lowered modules."""

from fx_importer.execution.backend import Backend, Loaded, Value
from fx_importer.execution.calling import Caller
from fx_importer.execution.jit import JitBackend

__all__ = ["Backend", "Caller", "JitBackend", "Loaded", "Value"]
