"""Windows of convolutions and pools: kernel, stride and padding, which has four sides here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from fx_importer.quantization.rule import BATCH, shape_of
from fx_importer.quantization.scales import NoIntegerForm


def pair(numbers: Any) -> list[int]:
    """Return a number for both axes, or two numbers, as a list of two."""
    values = list(numbers) if isinstance(numbers, Sequence) else [numbers]
    return [int(value) for value in (values * 2 if len(values) == 1 else values)]


def four_sides(padding: Sequence[int]) -> list[int]:
    """Return a padding per axis as top, bottom, left, right."""
    return [padding[0], padding[0], padding[1], padding[1]]


def same_padding(mode: str, weight: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Return the padding of a convolution of ``mode`` "same" or "valid"; of an odd total, more at the end."""
    totals = [0 if mode == "valid" else by * (size - 1) for by, size in zip(dilation, weight[-2:], strict=True)]
    return [side for total in totals for side in (total // 2, total - total // 2)]


def pool_windows(node: fx.Node) -> tuple[list[int], list[int], list[int]]:
    """Return the kernel, the stride and the padding of a pool ``(x, kernel, stride, padding, ...)``.

    The padding has the elements that ``ceil_mode`` adds. Raises `NoIntegerForm` for a dilation, and without a batch.
    """
    arguments = [*node.args[1:]]
    sizes, results = shape_of(node.args[0], BATCH)[-2:], shape_of(node, BATCH)
    if len(results) != 4:
        raise NoIntegerForm("its operand has no batch axis")
    if str(node.target).startswith("aten.max_pool2d") and len(arguments) > 3 and pair(arguments[3]) != [1, 1]:
        raise NoIntegerForm("TOSA's pools have no dilation")
    kernel = pair(arguments[0])
    stride = pair(arguments[1]) if len(arguments) > 1 and arguments[1] else kernel
    padding = pair(arguments[2]) if len(arguments) > 2 else [0, 0]
    sides: list[int] = []
    for size, count, window, step, pad in zip(sizes, results[-2:], kernel, stride, padding, strict=True):
        sides += [pad, max(pad, (count - 1) * step + window - size - pad)]
    return kernel, stride, sides
