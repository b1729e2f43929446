"""Check that there is enough memory before allocating it."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from fx_importer.errors import UsageError
from fx_importer.weights import stored_in


def check_conversion(folder: Path, dtype: torch.dtype | None, quantized: bool) -> None:
    """Raise `UsageError` if the converted weights of ``folder`` would not fit into memory.

    Only floating-point tensors count. If ``quantized``, each weight of a matrix takes half a byte, as in the smallest
    format. Other tensors count if they are converted to ``dtype``.
    """
    needed = 0
    for tensor in stored_in(folder).values():
        if tensor.type is None or not getattr(torch, tensor.type.dtype).is_floating_point:
            continue
        number = math.prod(tensor.type.sizes)
        if quantized and len(tensor.type.sizes) > 1:
            needed += number // 2
        elif dtype is not None and getattr(torch, tensor.type.dtype) != dtype:
            needed += number * dtype.itemsize
    available = available_memory()
    if available is not None and needed > available:
        raise UsageError(
            f"the converted weights take at least {needed / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB of memory "
            "are available: import the model without dtype and quantize, with its weights as they are"
        )


def available_memory() -> int | None:
    """Return the bytes of memory available without swapping; None if ``/proc/meminfo`` does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)
