"""Decomposes node after node: what has no rule is kept as it is, what has one is traced alone, once for all like it."""

from __future__ import annotations

from fx_importer.decompositions.engine.local.decompose_locally import decompose_locally
from fx_importer.decompositions.engine.local.rule_tracing import RetraceRequired

__all__ = ["RetraceRequired", "decompose_locally"]
