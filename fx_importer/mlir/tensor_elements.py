"""Elements of torch tensors as numpy arrays."""

from __future__ import annotations

import numpy as np
import torch

from fx_importer.errors import UsageError

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def missing_values(tensor: torch.Tensor) -> str | None:
    """Return why the elements of ``tensor`` cannot be read, a predicate; None if they can.

    Code that reads addresses does not see a storage that was freed or made smaller, as FSDP does between its calls.
    """
    if isinstance(tensor, torch._subclasses.FakeTensor):
        return "is a fake tensor, and has no values"
    if tensor.is_meta:
        return "is on the meta device, and has no values"
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return None
    if not tensor.numel():
        return None
    furthest = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (tensor.storage_offset() + furthest + 1) * tensor.itemsize
    if (there := tensor.untyped_storage().nbytes()) >= needed:
        return None
    return (
        f"has no memory: its storage has {there:,} of {needed:,} bytes, as one that was freed by "
        "`untyped_storage().resize_(0)`"
    )


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """Return the elements of a CPU tensor, in order, as a flat array that shares its memory where it is contiguous.

    numpy has no bfloat16 and no fp8: all dtypes but complex ones become integers of the same bits.

    Raises:
        UsageError: for a tensor without values.
    """
    if problem := missing_values(tensor):
        raise UsageError(f"a tensor of shape {tuple(tensor.shape)} {problem}")
    flat = tensor.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    if flat.dtype == torch.complex32:
        return torch.view_as_real(flat).view(torch.int16).numpy().view(np.int32).reshape(-1)
    if flat.is_complex():
        return flat.numpy()
    return flat.view(_BITS[flat.element_size()]).numpy()
