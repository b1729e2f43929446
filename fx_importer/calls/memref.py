"""Memref descriptors, with which compiled code takes and returns tensors."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

Descriptor = ctypes.Array[ctypes.c_int64]
"""Allocated pointer, aligned pointer, offset, then the sizes and the strides, in elements."""


def descriptor_type(rank: int) -> type[Descriptor]:
    """Return the descriptor type of a memref of ``rank``."""
    return ctypes.c_int64 * (3 + 2 * rank)


def describe(address: int, shape: Sequence[int]) -> Descriptor:
    """Return the descriptor of a contiguous row-major memref of ``shape`` at ``address``."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return descriptor_type(len(shape))(address, address, 0, *shape, *strides)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` contiguous and without conjugate or negative bits; itself if it already is.

    PyTorch allows any stride on a size-1 axis of a contiguous tensor. Such strides are reset to the row-major ones.
    """
    plain = tensor.detach() if tensor.requires_grad else tensor
    result = plain.resolve_conj().resolve_neg().contiguous()
    strides = torch.empty(result.shape, device="meta").stride()
    return result if result.stride() == strides else result.as_strided(result.shape, strides)


Result = tuple[int, int, int, Sequence[int], torch.dtype]
"""Allocated address, aligned address, offset in elements, sizes and dtype of a contiguous result."""


def adopt(results: Sequence[Result]) -> list[torch.Tensor]:
    """Return the results of a call as tensors, without a copy. The last tensor that uses the memory frees it.

    Results that share memory are copied, so that writing to one does not change another.
    """
    if len({result[0] for result in results}) == len(results):
        return [_view(_owned(result[0], _allocated_bytes(result)), result) for result in results]
    largest = {result[0]: result for result in sorted(results, key=_allocated_bytes)}
    blocks = {address: _owned(address, _allocated_bytes(result)) for address, result in largest.items()}
    tensors: list[torch.Tensor] = []
    adopted: set[int] = set()
    for result in results:
        tensor = _view(blocks[result[0]], result)
        tensors.append(tensor.clone() if result[0] in adopted else tensor)
        adopted.add(result[0])
    return tensors


def _view(block: Any, result: Result) -> torch.Tensor:
    allocated, aligned, offset, sizes, dtype = result
    count = math.prod(sizes)
    if count == 0:
        return torch.empty(sizes, dtype=dtype)
    start = aligned - allocated + offset * dtype.itemsize
    return torch.frombuffer(block, dtype=dtype, offset=start, count=count).view(sizes)


def read(descriptor: Descriptor, dtype: torch.dtype) -> torch.Tensor:
    """Return a copy of the contiguous row-major tensor of ``descriptor``."""
    return view(descriptor, dtype).clone()


def view(descriptor: Descriptor, dtype: torch.dtype) -> torch.Tensor:
    """Return a view of the contiguous row-major tensor of ``descriptor``. It does not keep the memory alive."""
    result: Result = (*descriptor[:3], descriptor[3 : 3 + (len(descriptor) - 3) // 2], dtype)
    block = (ctypes.c_uint8 * _allocated_bytes(result)).from_address(descriptor[0])
    return _view(block, result)


def allocated(tensor: torch.Tensor) -> int:
    """Copy the contiguous ``tensor`` into memory that compiled code frees; return the address.

    Raises:
        MemoryError: if the allocation fails.
    """
    address = _malloc(max(tensor.nbytes, 1))
    if not address:
        raise MemoryError(f"no {tensor.nbytes:,} bytes of memory")
    ctypes.memmove(address, tensor.data_ptr(), tensor.nbytes)
    return address


def free(address: int) -> None:
    """Free memory allocated by compiled code or by `allocated`; do nothing for 0."""
    if _free is not None:  # it is None when Python exits
        _free(address)


def _allocated_bytes(result: Result) -> int:
    """Return the bytes from the allocated pointer to the end of the tensor."""
    allocated, aligned, offset, sizes, dtype = result
    return aligned - allocated + (offset + math.prod(sizes)) * dtype.itemsize


_libc = ctypes.CDLL(None)
_malloc = _libc.malloc
_malloc.argtypes = (ctypes.c_size_t,)
_malloc.restype = ctypes.c_void_p
_free = _libc.free
_free.argtypes = (ctypes.c_void_p,)
_free.restype = None


def _owned(address: int, size: int) -> Any:
    """Return a buffer of ``size`` bytes at ``address`` that frees the memory when it is no longer used."""
    return _buffer_type(size).from_address(address)


@functools.lru_cache(maxsize=256)
def _buffer_type(size: int) -> Any:
    def release(self: Any, free: Any = free, address: Any = ctypes.addressof) -> None:
        free(address(self))

    return type("Buffer", (ctypes.c_uint8 * size,), {"__del__": release})
