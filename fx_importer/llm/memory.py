"""Checks that the memory suffices, before it is taken."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from fx_importer.errors import UsageError
from fx_importer.weights import stored_in


def check_conversion(folder: Path, dtype: torch.dtype | None, quantized: bool) -> None:
    """Raise `UsageError` if the weights in ``folder`` do not fit into memory once they are converted.

    Counted are floating-point tensors of another dtype than ``dtype``, if given; of matrices that are ``quantized``,
    half a byte for each weight, as of the smallest format.
    """
    needed = 0
    for each in stored_in(folder).values():
        if each.type is None or not getattr(torch, each.type.dtype).is_floating_point:
            continue
        number = math.prod(each.type.sizes)
        if quantized and len(each.type.sizes) > 1:
            needed += number // 2
        elif dtype is not None and getattr(torch, each.type.dtype) != dtype:
            needed += number * dtype.itemsize
    available = available_memory()
    if available is not None and needed > available:
        raise UsageError(
            f"the converted weights take at least {needed / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB of memory "
            "are available: import the model without dtype and quantize, with its weights as they are"
        )


def available_memory() -> int | None:
    """Return the bytes of memory that can be taken without swapping; None where Linux does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((1024 * int(each.split()[1]) for each in lines if each.startswith("MemAvailable:")), None)
