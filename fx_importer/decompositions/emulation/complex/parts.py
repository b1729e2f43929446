"""Real and imaginary parts of complex tensors and numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Operand = Tensor | int | float | complex


Part = Tensor | float


def is_complex(*operands: Any) -> bool:
    """Return whether any operand is complex, and all are tensors or numbers (none symbolic)."""
    known = all(isinstance(x, Tensor | int | float | complex) for x in operands)
    return known and any(x.is_complex() if isinstance(x, Tensor) else isinstance(x, complex) for x in operands)


def parts_of(x: Operand) -> tuple[Part, Part]:
    """Return the real and the imaginary part."""
    if not isinstance(x, Tensor):
        return (x.real, x.imag) if isinstance(x, complex) else (float(x), 0.0)
    if not x.is_complex():
        return x, 0.0
    return parts_of_tensor(x)


def parts_of_tensor(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the real and the imaginary part of a complex tensor."""
    pairs = torch.view_as_real(x)
    return pairs.select(-1, 0), pairs.select(-1, 1)


def complex_of(real: Part, imaginary: Part, dtype: torch.dtype) -> Tensor:
    """Return a complex tensor of ``dtype`` from two parts; at least one is a tensor."""
    shape = torch.broadcast_shapes(*(part.shape for part in (real, imaginary) if isinstance(part, Tensor)))
    to = dtype.to_real()
    parts = [p.to(to) if isinstance(p, Tensor) else torch.full((), p, dtype=to) for p in (real, imaginary)]
    return torch.complex(parts[0].expand(shape), parts[1].expand(shape))
