"""Decompositions of pads: booleans, dynamic shapes, negative widths as slices, and circular ones as concatenations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.constant_pad_nd.default)
def pad_of_booleans(x: Tensor, widths: Sequence[int], value: float = 0) -> Tensor:
    """Pad booleans by a number other than 0 and 1 as by true."""
    if x.dtype != torch.bool or value in (0, 1):
        return NotImplemented
    return aten.constant_pad_nd(x, widths, 1)


@decomposes(aten.constant_pad_nd.default)
def pad_of_dynamic_shape(x: Tensor, widths: Sequence[int], value: float = 0) -> Any:
    """Concatenate with the padding if a size is dynamic; negative widths are slices."""
    if is_static(x):
        return NotImplemented
    for number, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True)):
        axis = x.dim() - 1 - number
        first, last = _cropped(before), _cropped(after)
        if first or last:
            x = x.narrow(axis, first, x.shape[axis] - first - last)
        shape = list(x.shape)
        parts = [x]
        if not isinstance(before, int) or before > 0:
            parts.insert(0, torch.full([*shape[:axis], before, *shape[axis + 1 :]], value, dtype=x.dtype))
        if not isinstance(after, int) or after > 0:
            parts.append(torch.full([*shape[:axis], after, *shape[axis + 1 :]], value, dtype=x.dtype))
        x = torch.cat(parts, axis)
    return x


@decomposes(aten.pad_sequence.default)
def pad_sequence_of_dynamic_lengths(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Any:
    """Concatenate sequences with as many elements as the longest one has more, if a length is dynamic."""
    lengths = [sequence.shape[0] for sequence in sequences]
    if all(isinstance(length, int) for length in lengths):
        return NotImplemented
    longest: Any = reduce(torch.sym_max, lengths)
    padded = []
    for sequence, length in zip(sequences, lengths, strict=True):
        shape = [longest - length, *sequence.shape[1:]]
        parts = [sequence.to(sequences[0].dtype), sequences[0].new_full(shape, padding_value)]
        padded.append(torch.cat(parts if padding_side == "right" else parts[::-1]))
    return torch.stack(padded, 0 if batch_first else 1)


@decomposes(aten.constant_pad_nd.default)
def pad_of_int16(x: Tensor, widths: Sequence[int], value: float = 0) -> Tensor:
    """Pad int16 as int32."""
    if x.dtype != torch.int16:
        return NotImplemented
    return aten.constant_pad_nd(x.to(torch.int32), widths, value).to(torch.int16)


@decomposes(aten.pad.default)
def pad_circular(x: Tensor, widths: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """Concatenate with the ends of each axis."""
    if mode != "circular" or any(not isinstance(width, int) or width < 0 for width in widths):
        return NotImplemented
    for number, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True)):
        axis = x.dim() - 1 - number
        first = [aten.slice.Tensor(x, axis, -before, None)] if before else []
        last = [x.narrow(axis, 0, after)] if after else []
        x = torch.cat([*first, x, *last], axis)
    return x


def _cropped(width: int) -> int:
    """Return the number of elements that a pad of ``width`` removes."""
    return max(-width, 0) if isinstance(width, int) else 0


@decomposes(aten.constant_pad_nd.default)
def pad_negative_widths(x: Tensor, widths: Sequence[int], value: float = 0) -> Tensor:
    """Slice by negative widths, and pad by the others."""
    if all(not isinstance(width, int) or width >= 0 for width in widths):
        return NotImplemented
    for number, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True)):
        axis = x.dim() - 1 - number
        x = x.narrow(axis, _cropped(before), x.shape[axis] - _cropped(before) - _cropped(after))
    return aten.constant_pad_nd(x, [max(width, 0) for width in widths], value)
