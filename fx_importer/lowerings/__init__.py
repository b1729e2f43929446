"""Users' lowerings of single operators: decompositions, builders of target operations, and external calls."""

from fx_importer.lowerings.constants import CannotEmit
from fx_importer.lowerings.handlers import handlers_for
from fx_importer.lowerings.lowering_registry import LoweringRule, Lowerings, layers, listed, stubs_of, table_with
from fx_importer.lowerings.lowering_rules import EMITTERS, External, Lowering, NoMatch, external, lowers
from fx_importer.lowerings.target_emitter import TargetEmitter

__all__ = [
    "EMITTERS",
    "CannotEmit",
    "External",
    "Lowering",
    "LoweringRule",
    "Lowerings",
    "NoMatch",
    "TargetEmitter",
    "external",
    "handlers_for",
    "layers",
    "listed",
    "lowers",
    "stubs_of",
    "table_with",
]
