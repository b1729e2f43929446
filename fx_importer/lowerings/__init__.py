"""Lowerings of single operators in Python: as decompositions, as builders of the target's operations, as calls."""

from fx_importer.lowerings.handlers import handlers_for
from fx_importer.lowerings.lowering_registry import Lowerings, Rule, layers, listed, stubs_of, table_with
from fx_importer.lowerings.lowering_rules import Declined, External, Lowering, external, lowers
from fx_importer.lowerings.module_builder import CannotEmit
from fx_importer.lowerings.target_emitter import TargetEmitter

__all__ = [
    "CannotEmit",
    "Declined",
    "External",
    "Lowering",
    "Lowerings",
    "Rule",
    "TargetEmitter",
    "external",
    "handlers_for",
    "layers",
    "listed",
    "lowers",
    "stubs_of",
    "table_with",
]
