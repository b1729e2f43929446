"""Real and imaginary parts of complex tensors and numbers; rules of conversions and constructors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten

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


@decomposes(aten._to_copy.default)
def convert(x: Tensor, *, dtype: torch.dtype | None = None, **settings: Any) -> Any:
    """Convert to real numbers by the real part, to bool by whether either part is nonzero; from real ones, by parts."""
    del settings
    if not x.is_complex() and dtype is not None and dtype.is_complex and x.dtype is not dtype.to_real():
        real = x.to(dtype.to_real())
        return torch.complex(real, torch.zeros_like(real))
    if not x.is_complex() or dtype is None or dtype.is_complex:
        return NotImplemented
    if dtype == torch.bool:
        return torch.any(torch.view_as_real(x) != 0, -1)
    return torch.view_as_real(x).select(-1, 0).to(dtype)


@decomposes(aten.view_as_complex.default)
def view_as_complex(x: Tensor) -> Tensor:
    """Return complex numbers of the two elements along the last axis, the real part first."""
    return torch.complex(x[..., 0], x[..., 1])


@decomposes(aten.eye.default, aten.eye.m)
def eye(*sizes: int, dtype: torch.dtype | None = None, **settings: Any) -> Any:
    """Return the identity matrix, made of real numbers first."""
    if dtype is None or not dtype.is_complex:
        return NotImplemented
    del settings
    return torch.eye(*sizes, dtype=dtype.to_real()).to(dtype)


@decomposes(aten.copy.default)
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Any:
    """Return ``source`` in the dtype and the shape of ``x``."""
    return source.to(x.dtype).expand(x.shape).clone() if x.is_complex() else NotImplemented
