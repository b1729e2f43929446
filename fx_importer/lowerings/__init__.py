"""Users' lowerings of single operators: decompositions, builders of target operations, and external calls."""

from fx_importer.lowerings.constants import CannotEmit
from fx_importer.lowerings.handlers import handlers_for
from fx_importer.lowerings.integer_products import INTEGER_PRODUCTS
from fx_importer.lowerings.integer_tosa_layers import INTEGER_TOSA
from fx_importer.lowerings.integer_tosa_resizes import WITHOUT_RESIZE
from fx_importer.lowerings.lowering_registry import LoweringRule, Lowerings, layers, listed, stubs_of, table_with
from fx_importer.lowerings.lowering_rules import EMITTERS, External, Lowering, NoMatch, external, lowers
from fx_importer.lowerings.target_emitter import TargetEmitter

__all__ = [
    "EMITTERS",
    "INTEGER_PRODUCTS",
    "INTEGER_TOSA",
    "WITHOUT_RESIZE",
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
