"""Memory as compiled code sees it: a *descriptor* says where a tensor lies and how large it is."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence

import torch

DTYPES: dict[str, tuple[torch.dtype, ...]] = {
    "f64": (torch.float64,),
    "f32": (torch.float32,),
    "f16": (torch.float16,),
    "bf16": (torch.bfloat16,),
    "f8E4M3FN": (torch.float8_e4m3fn,),
    "f8E5M2": (torch.float8_e5m2,),
    "f8E4M3FNUZ": (torch.float8_e4m3fnuz,),
    "f8E5M2FNUZ": (torch.float8_e5m2fnuz,),
    "complex<f16>": (torch.complex32,),
    "complex<f32>": (torch.complex64,),
    "complex<f64>": (torch.complex128,),
    "i1": (torch.bool,),
    "i8": (torch.int8, torch.uint8),
    "i16": (torch.int16, torch.uint16),
    "i32": (torch.int32, torch.uint32),
    "i64": (torch.int64, torch.uint64),
}
"""What an element type holds. Integers have no sign there, so both fit; a result comes back as the first one."""


Descriptor = ctypes.Array[ctypes.c_int64]
"""Address to free, address of the data, offset, then the sizes and the strides, in elements."""


def descriptor_type(rank: int) -> type[Descriptor]:
    """Return the layout of the descriptor of a tensor with ``rank`` axes."""
    return ctypes.c_int64 * (3 + 2 * rank)


def describe(address: int, shape: Sequence[int]) -> Descriptor:
    """Return the descriptor of ``shape`` elements that lie densely, in row-major order, at ``address``."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return descriptor_type(len(shape))(address, address, 0, *shape, *strides)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of ``tensor`` densely in row-major order: itself, where it can be."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def adopt(results: Sequence[tuple[Descriptor, torch.dtype]]) -> list[torch.Tensor]:
    """Return the tensors that a call returned, without a copy. Memory is freed when the last tensor in it is gone.

    Results that share memory are told apart by a copy: writing to one never shows in another.
    """
    memory: dict[int, ctypes.Array[ctypes.c_uint8]] = {}
    for address, size in sorted((descriptor[0], _allocated_bytes(descriptor, dtype)) for descriptor, dtype in results):
        memory[address] = (ctypes.c_uint8 * size).from_address(address)  # sorted: the largest extent stays
    for address, block in memory.items():
        # Not at exit: a tensor may still be in use then.
        weakref.finalize(block, _free, address).atexit = False
    tensors: list[torch.Tensor] = []
    taken: set[int] = set()
    for descriptor, dtype in results:
        address = descriptor[0]
        tensor = _view(memory[address], descriptor, dtype)
        tensors.append(tensor.clone() if address in taken else tensor)
        taken.add(address)
    return tensors


def _view(block: ctypes.Array[ctypes.c_uint8], descriptor: Descriptor, dtype: torch.dtype) -> torch.Tensor:
    allocated, aligned, offset = descriptor[:3]
    sizes = _sizes(descriptor)
    count = math.prod(sizes)
    if count == 0:
        return torch.empty(sizes, dtype=dtype)
    start = aligned - allocated + offset * dtype.itemsize
    return torch.frombuffer(block, dtype=dtype, offset=start, count=count).reshape(sizes)


def read(descriptor: Descriptor, dtype: torch.dtype) -> torch.Tensor:
    """Return a copy of the tensor that lies, dense and in row-major order, where ``descriptor`` says."""
    block = (ctypes.c_uint8 * _allocated_bytes(descriptor, dtype)).from_address(descriptor[0])
    return _view(block, descriptor, dtype).clone()


def allocated(tensor: torch.Tensor) -> int:
    """Return the address of a copy of ``tensor``, which is dense, in memory for compiled code to free.

    Raises:
        MemoryError: if there is none.
    """
    address = _malloc(max(tensor.nbytes, 1))
    if not address:
        raise MemoryError(f"no {tensor.nbytes:,} bytes of memory")
    ctypes.memmove(address, tensor.data_ptr(), tensor.nbytes)
    return address


def _allocated_bytes(descriptor: Descriptor, dtype: torch.dtype) -> int:
    """Return how many bytes from the allocated address on belong to the tensor."""
    allocated, aligned, offset = descriptor[:3]
    return aligned - allocated + (offset + math.prod(_sizes(descriptor))) * dtype.itemsize


def _sizes(descriptor: Descriptor) -> list[int]:
    return descriptor[3 : 3 + (len(descriptor) - 3) // 2]


_libc = ctypes.CDLL(None)
_malloc = _libc.malloc
_malloc.argtypes = (ctypes.c_size_t,)
_malloc.restype = ctypes.c_void_p
_free = _libc.free
_free.argtypes = (ctypes.c_void_p,)
_free.restype = None
