"""Decompositions of fractional max pools, whose windows have one size and begin at random places.

Graham, Fractional Max-Pooling (2014): with a random number ``u``, window ``i`` of ``n`` along an axis begins at
``floor(a (i + u)) - floor(a u)``, where ``a = (size - kernel) / (n - 1)``; the last one ends at the end of the axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.emulation.low_precision import HALF_DTYPES
from fx_importer.decompositions.engine.static_shapes import are_static, is_empty
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


def _starts(samples: Tensor, size: int, kernel: int, outputs: int) -> Tensor:
    """Return where the windows begin, [planes, outputs], for a number of each plane.

    Each step is rounded to the dtype of ``samples``, as in eager: a window would begin elsewhere otherwise.
    """
    last = torch.full((samples.shape[0], 1), size - kernel, dtype=torch.int32)
    if outputs == 1:
        return last
    dtype = samples.dtype
    wide = torch.float32 if dtype in HALF_DTYPES else dtype
    step = _rounded(_rounded(size - kernel, dtype) / _rounded(outputs - 1, dtype), dtype)
    samples = samples.to(wide).unsqueeze(1)
    moved = (torch.arange(outputs - 1).to(wide) + samples).to(dtype).to(wide) * step
    starts = moved.to(dtype).to(torch.int32) - (samples * step).to(dtype).to(torch.int64)
    return torch.cat([starts, last], 1)


def _rounded(x: float, dtype: torch.dtype) -> float:
    """Return the number of ``dtype`` next to ``x``; of two, the even one."""
    bits = 1 - round(math.log2(torch.finfo(dtype).eps))
    fraction, exponent = math.frexp(x)
    return math.ldexp(round(math.ldexp(fraction, bits)), exponent - bits)


def _fractional_max_pool(operator: Any, order: Sequence[int]) -> Decomposition:
    @decomposes(operator)
    def fractional_max_pool(x: Tensor, kernel: Sequence[int], outputs: Sequence[int], samples: Tensor) -> Any:
        """Return the maxima of the windows and their flat indices: of equal elements the first, of NaNs the last."""
        axes = len(order)
        sizes = x.shape[-axes:]
        if not are_static(*sizes) or is_empty(x) or 0 in outputs:
            return NotImplemented
        rows, samples = x.flatten(-axes).flatten(0, -2), samples.flatten(0, -2)
        places: Tensor | None = None  # [planes, outputs ..., kernel ...]: flat indices of the elements of each window
        for axis in range(axes):
            window = _starts(samples[:, order[axis]], sizes[axis], kernel[axis], outputs[axis])
            elements = window.unsqueeze(-1) + torch.arange(kernel[axis], dtype=torch.int32)
            shape = [1] * (2 * axes)
            shape[axis], shape[axes + axis] = outputs[axis], kernel[axis]
            elements = elements.reshape(-1, *shape)
            places = elements if places is None else places * sizes[axis] + elements
        assert places is not None
        places = places.to(torch.int64).flatten(1, axes).flatten(2)
        elements = torch.gather(rows, 1, places.flatten(1)).reshape(places.shape)
        values, first = torch.max(elements, -1, keepdim=True)
        last = torch.amax(torch.where(elements.isnan(), torch.arange(places.shape[-1]), -1), -1, keepdim=True)
        indices = torch.gather(places, -1, torch.where(last < 0, first, last))
        result = (*x.shape[:-axes], *outputs)
        return values.reshape(result), indices.reshape(result)

    return fractional_max_pool


FRACTIONAL_POOLING = (
    _fractional_max_pool(aten.fractional_max_pool2d.default, (1, 0)),  # its first random number is for the width
    _fractional_max_pool(aten.fractional_max_pool3d.default, (0, 1, 2)),
)
