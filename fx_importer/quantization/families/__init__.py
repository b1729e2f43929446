"""Operator families, one file each: folding rules, integer operators with their eager forms, and lowerings."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from fx_importer.decompositions import decomposes
from fx_importer.lowerings import Lowerings
from fx_importer.output_types import OutputType
from fx_importer.quantization.integer_operators import integer
from fx_importer.quantization.rule import Family

FAMILIES: tuple[Family, ...] = tuple(
    importlib.import_module(f"{__name__}.{module.name}").FAMILY for module in pkgutil.iter_modules(__path__)
)
"""The records of all files of this folder."""
RULES = {target: rule for family in FAMILIES for target, rule in family.rules.items()}
"""By ATen operator that computes."""
MOVES = {target: move for family in FAMILIES for target, move in family.moves.items()}
"""By ATen operator that moves elements."""
RESULT_SCALES = {target: scale for family in FAMILIES for target, scale in family.result_scales.items()}
"""Scale and zero point of operators whose results have a known range."""


@functools.cache
def integer_lowerings(root: OutputType) -> Lowerings:
    """Return the rules of all integer operators for an output type: a lowering, or the decomposition to the eager form.

    Args:
        root: an output type that lowerings have emitters for, the base of others.
    """
    lowerings = [rule for family in FAMILIES for rule in family.lowerings if rule.is_for(root)]
    lowered = {operator for rule in lowerings for operator in rule.operators}
    eager = {getattr(integer, form.__name__).default: form for family in FAMILIES for form in family.operators}
    decomposed = [decomposes(operator)(form) for operator, form in eager.items() if operator not in lowered]
    return Lowerings((*lowerings, *decomposed))
