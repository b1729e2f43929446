"""The decompositions for StableHLO."""

from __future__ import annotations

import torch

from fx_importer.decompositions import indexing, scalars, unsigned, windows
from fx_importer.decompositions.base import BASE
from fx_importer.decompositions.special import SPECIAL

aten = torch.ops.aten

STABLEHLO = BASE.replacing(
    *scalars.ARITHMETIC,  # the C++ lowerings carry a number as an arith.constant of 64 bits
    *scalars.COMPARISONS,  # the same
    *windows.WINDOWS,  # it has no lowering
    *unsigned.UNSIGNED,  # computed as if signed, or not at all
    indexing.index_put,  # the C++ lowering takes negative indices as they are
    *SPECIAL,  # no backend takes them whole
).from_torch(
    aten.leaky_relu.default,  # the same, of the slope
    aten.elu.default,  # the same, of the scales
)
