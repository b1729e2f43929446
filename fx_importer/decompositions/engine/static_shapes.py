"""Whether shapes are static: symbolic sizes are ``SymInt``, static ones ``int``."""

from __future__ import annotations

import math

from torch import Tensor


def is_static(*tensors: Tensor | None) -> bool:
    """Return whether the shapes of all given tensors are static."""
    return all(isinstance(size, int) for tensor in tensors if tensor is not None for size in tensor.shape)


def are_static(*sizes: int) -> bool:
    """Return whether all ``sizes`` are static."""
    return all(isinstance(size, int) for size in sizes)


def is_empty(x: Tensor) -> bool:
    """Return whether a static size of ``x`` is zero."""
    return 0 in [size for size in x.shape if isinstance(size, int)]


def static_numel(x: Tensor) -> int:
    """Return the product of the static sizes of ``x``: the number of its elements for dynamic sizes of 1."""
    return math.prod(size for size in x.shape if isinstance(size, int))
