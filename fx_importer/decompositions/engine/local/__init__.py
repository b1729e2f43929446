"""Local decomposition: nodes without a rule are copied; a rule is traced alone, once per kind of call."""

from __future__ import annotations

from fx_importer.decompositions.engine.local.decompose_locally import decompose_locally
from fx_importer.decompositions.engine.local.rule_tracing import RetraceRequired

__all__ = ["RetraceRequired", "decompose_locally"]
