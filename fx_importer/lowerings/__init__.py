"""Lowerings of single operators in Python: as decompositions, as builders of the target's operations, as calls."""

from fx_importer.lowerings.building import CannotEmit
from fx_importer.lowerings.emitting import TargetEmitter
from fx_importer.lowerings.handling import handlers_for
from fx_importer.lowerings.registry import Lowerings, Rule, layers, listed, stubs_of, table_with
from fx_importer.lowerings.rule import Declined, External, Lowering, external, lowers

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
