"""Rules of hypot, angle and polar."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.emulation.complex.parts import parts_of_tensor
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.special.chebyshev import decomposes_in_float
from fx_importer.fx_graph.operators import aten


@decomposes_in_float(aten.hypot.default)
def hypot(a: Tensor, b: Tensor) -> Tensor:
    """Return ``sqrt(a**2 + b**2)``, by the ratio of both, so that no square overflows.

    Relative error in float32: 2e-7.
    """
    large, small = torch.maximum(a.abs(), b.abs()), torch.minimum(a.abs(), b.abs())
    ratio = small / torch.where(large == 0, 1, large)
    length = large * torch.sqrt(1 + ratio * ratio)
    infinite = (a.abs() == torch.inf) | (b.abs() == torch.inf)
    return torch.where(infinite, torch.inf, length)


@decomposes(aten.angle.default)
def angle(x: Tensor) -> Any:
    """Return the angle of a complex number, 0 or pi of a real one, NaN of NaN."""
    if x.is_complex():
        return torch.atan2(*reversed(parts_of_tensor(x)))
    real = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    return torch.where(real != real, real, (real < 0).to(real.dtype) * math.pi)


@decomposes(aten.polar.default)
def polar(magnitude: Tensor, angle: Tensor) -> Tensor:
    """Return the complex number of this magnitude and angle."""
    magnitude, angle = torch.broadcast_tensors(magnitude, angle)
    return torch.complex(magnitude * torch.cos(angle), magnitude * torch.sin(angle))


POLAR_COORDINATES = (hypot, angle, polar)
