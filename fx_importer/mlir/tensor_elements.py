"""Elements of torch tensors as numpy arrays."""

from __future__ import annotations

import numpy as np
import torch

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """Return the elements of a CPU tensor, in order, as a flat array that shares its memory where it is contiguous.

    numpy has no bfloat16 and no fp8: all dtypes but complex ones become integers of the same bits.
    """
    flat = tensor.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    if flat.dtype == torch.complex32:
        return torch.view_as_real(flat).view(torch.int16).numpy().view(np.int32).reshape(-1)
    if flat.is_complex():
        return flat.numpy()
    return flat.view(_BITS[flat.element_size()]).numpy()
