"""Registries of operator lowerings: ``tosa``, ``linalg`` and ``math`` have an ``ops_registry`` each."""

from fx_importer.dynamo.ops import linalg, math, tosa

__all__ = ["linalg", "math", "tosa"]
