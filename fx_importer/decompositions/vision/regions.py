"""Functions that torchvision's operators on regions of interest share.

Pixels are rows of channels, ``[images * height * width, channels]``: a gather has one index for each pixel, and none
for each channel. The input of a position-sensitive operator has channels for each bin of the regions:
``(channel * bins + bin)``; there is a row for each bin of a pixel, then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.loops import while_loop
from fx_importer.decompositions.engine.static_shapes import are_static
from fx_importer.fx_graph.operators import aten


def rows_of_pixels(images: Tensor, bins: int = 1) -> Tensor:
    """Return the rows of ``images``, [n, bins * channels, height, width], in the order image, y, x, bin."""
    n, channels, height, width = images.shape
    by_bin = images.reshape(n, channels // bins, bins, height, width)
    return by_bin.permute(0, 3, 4, 2, 1).reshape(n * height * width * bins, channels // bins)


def index_of_pixels(
    image: Tensor, y: Tensor, x: Tensor, height: int | Tensor, width: int | Tensor, bins: Tensor | None = None
) -> Tensor:
    """Return the rows of pixels at integers ``y`` and ``x``; ``bins`` are the numbers of bins, if they differ."""
    index = (image * height + y) * width + x
    return index if bins is None else index * bins.numel() + bins


def gather_rows(rows: Tensor, index: Tensor) -> Tensor:
    """Return [*index.shape, channels]."""
    return rows.index_select(0, index.reshape(-1)).reshape(*index.shape, rows.shape[1])


def bin_numbers(height: int, width: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """Return the numbers of bins in row-major order, [height, width]."""
    return torch.arange(height * width, dtype=dtype).reshape(height, width)


def channel_mapping(boxes: int, channels: int, height: int, width: int) -> Tensor:
    """Return the input channel that each output of a position-sensitive operator reads, in int32."""
    channel = torch.arange(channels, dtype=torch.int32).reshape(-1, 1, 1) * (height * width)
    return (channel + bin_numbers(height, width, torch.int32)).expand(boxes, channels, height, width).clone()


def one_hot_images(image: Tensor, number: int, dtype: torch.dtype) -> Tensor:
    """Return [boxes, number of images], 1 where a box is in the image."""
    return (image.reshape(-1, 1) == torch.arange(number)).to(dtype)


def round_half_away(x: Tensor) -> Tensor:
    """Round as C does: halves away from zero."""
    whole = torch.trunc(x)
    return whole + torch.where((x - whole).abs() >= 0.5, torch.sign(x), 0.0)


def quotient(a: Tensor, b: Tensor | float) -> Tensor:
    """Return ``a / b`` as rounded in eager, where a last bit decides whether a sample or a box counts.

    TOSA divides by multiplying with a reciprocal. One step of Newton's method with the exact remainder corrects that
    (T. J. Dekker, A floating-point technique for extending the available precision, 1971); it changes no quotient that
    is rounded already. Dtypes but float32 are left alone.
    """
    result = a / b
    if a.dtype is not torch.float32:
        return result
    divisor = b if isinstance(b, Tensor) else torch.full((), b, dtype=a.dtype)
    product = result * divisor
    (high, low), (other_high, other_low) = _halves(result), _halves(divisor)
    error = ((high * other_high - product) + high * other_low + low * other_high) + low * other_low
    correction = ((a - product) - error) / divisor
    return torch.where(correction.abs() <= result.abs() * 1e-6, result + correction, result)  # not where it overflows


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the upper and the lower 12 bits of float32 values, whose sum is ``x``."""
    shifted = x * 4097.0
    high = shifted - (shifted - x)
    return high, x - high


def repeat_up_to(
    turns: Tensor,
    step: Callable[..., tuple[Tensor, ...]],
    state: tuple[Tensor, ...],
    invariants: tuple[Tensor, ...],
    sizes: tuple[int, ...] = (),
) -> tuple[Tensor, ...]:
    """Repeat ``state = step(turn, *state, *invariants, *sizes)`` for each ``turn`` below the largest of ``turns``.

    ``turn`` is an int64 tensor of rank 0, and so are dynamic ``sizes`` in the step, whose function holds no symbolic
    ones. The step returns no state unchanged.
    """
    last = torch.cat([turns.reshape(-1), torch.zeros(1, dtype=turns.dtype)]).amax()
    dynamic = tuple(torch.scalar_tensor(size, dtype=torch.int64) for size in sizes if not are_static(size))
    static = [size if are_static(size) else None for size in sizes]

    def more(turn: Tensor, *rest: Tensor) -> Tensor:
        return turn < rest[len(state)]

    def body(turn: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        others = rest[len(state) + 1 :]
        numbers = iter(others[len(invariants) :])
        inner = (next(numbers) if size is None else size for size in static)
        return turn + 1, *step(turn, *rest[: len(state)], *others[: len(invariants)], *inner)

    start = torch.zeros((), dtype=torch.int64)
    return while_loop(more, body, (start, *state), (last, *invariants, *dynamic))[1:]


def add_to_channels(values: Tensor, index: Tensor, pixels: int) -> Tensor:
    """Return [channels, pixels], the sums of ``values`` [channels, n] by the pixels of ``index``, of the same shape."""
    zeros = torch.zeros((values.shape[0], pixels), dtype=values.dtype)
    result: Any = aten.scatter_add(zeros, 1, index, values)
    return result
