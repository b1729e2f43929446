"""Transfers of tensors between the host and a device of IREE."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from fx_importer.engines.iree.engine import IREE_ENGINE


def page_aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy of ``array`` at the start of a page: Vulkan imports no other memory of the host."""
    memory = np.frombuffer(mmap.mmap(-1, max(array.nbytes, 1)), dtype=np.uint8)
    copy = memory[: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def to_host(result: Any, device: Any) -> np.ndarray[Any, Any]:
    """Return a copy of ``result``, an ``iree.runtime.DeviceArray``, by a buffer that the host maps.

    ``DeviceArray.to_host`` of IREE 3.13 imports unaligned memory, which Vulkan refuses.
    """
    runtime = IREE_ENGINE.imported("iree.runtime")
    view = result._buffer_view
    source = view.get_buffer()
    memory = runtime.MemoryType.HOST_LOCAL | runtime.MemoryType.DEVICE_VISIBLE
    usage = runtime.BufferUsage.TRANSFER_TARGET | runtime.BufferUsage.MAPPING_SCOPED
    staging = device.allocator.allocate_buffer(memory, usage, source.byte_length())
    semaphore = device.create_semaphore(0)
    done = runtime.HalFence.create_at(semaphore, 1)
    device.queue_copy(source, staging, runtime.HalFence.create_at(semaphore, 0), done)
    done.wait()
    dtype = runtime.HalElementType.map_to_dtype(view.element_type)
    return np.array(staging.map().asarray(view.shape, dtype))
