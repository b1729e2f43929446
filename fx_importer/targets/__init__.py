"""Targets of the output types, one per file. User-defined targets derive from them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from fx_importer.decompositions import expand_packets
from fx_importer.errors import UsageError
from fx_importer.output_types import OutputType
from fx_importer.targets.linalg import LINALG_ON_TENSORS
from fx_importer.targets.raw import RAW
from fx_importer.targets.stablehlo import STABLEHLO
from fx_importer.targets.target import Target
from fx_importer.targets.torch import TORCH
from fx_importer.targets.tosa import TOSA

__all__ = ["TARGETS", "Target", "target_for"]

TARGETS = {target.output_type: target for target in (RAW, TORCH, LINALG_ON_TENSORS, TOSA, STABLEHLO)}


@functools.cache
def target_for(output_type: OutputType) -> Target:
    """Return the target of ``output_type``. A user-defined one has the target of its base with its decompositions.

    Raises:
        UsageError: if the decompositions of a user-defined output type are not a table.
    """
    if output_type.base is None:
        return TARGETS[output_type]
    base, given = target_for(output_type.base), output_type.decompositions
    table = (
        base.decompositions if given is None else given if isinstance(given, Mapping) else given(base.decompositions)
    )
    if not isinstance(table, Mapping):
        raise UsageError(f"{output_type!r}: its decompositions are no table but {type(table).__name__}")
    return replace(base, output_type=output_type, decompositions=expand_packets(table))
