"""Memory of the buffers of dynamic size that compiled code keeps from call to call (`rewrites.llvm.arena`)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from fx_importer.calls.memref import free

_WORDS_OF_SLOT = 5
"""Of the descriptor of a block of bytes: allocated and aligned address, offset, size and stride."""


def new_slots(count: int) -> Any:
    """Return the descriptors of slots without memory, as an array of C: they may be freed where tensors are fake."""
    return (ctypes.c_int64 * (count * _WORDS_OF_SLOT))()


def free_slots(slots: Sequence[int]) -> None:
    """Free the memory of slots by their descriptors ``slots``."""
    for allocated in slots[::_WORDS_OF_SLOT]:
        free(allocated)
