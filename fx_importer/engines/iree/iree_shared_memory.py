"""Tensors of PyTorch in the memory of a device of IREE, passed by DLPack: they do not go through the host.

Results do: IREE 3.13 exports no memory of CUDA, and copies none into memory that it was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fx_importer.calls.call_signature import Signature, TensorKind
from fx_importer.engines.iree.engine import IREE_ENGINE
from fx_importer.mlir.bindings import func_d, ir

_ALIGNMENT = 64
"""Bytes to which IREE takes the addresses of buffers to be aligned."""
_VIEWS = frozenset(("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast", "tensor.extract_slice"))


@dataclass(frozen=True)
class SharedDevice:
    """A device that PyTorch and IREE have in common."""

    device: torch.device
    driver_device: Any
    """The device in IREE."""

    def has(self, value: object) -> bool:
        """Return whether ``value`` is a tensor on the device. One without elements has no memory."""
        if not isinstance(value, torch.Tensor) or not value.numel() or value.device.type != self.device.type:
            return False
        return (value.device.index or 0) == self.device.index

    def wait_for_torch(self) -> None:
        """Wait until PyTorch's current stream has written what a call reads: IREE 3.13 waits for no stream of CUDA."""
        if self.device.type != "cpu":
            torch.accelerator.current_stream(self.device).synchronize()

    def taken(self, tensor: torch.Tensor, element: Any, *, written: bool) -> Any:
        """Return the contiguous ``tensor`` as a buffer view; a copy on the device if the program may write to it."""
        runtime = IREE_ENGINE.imported("iree.runtime")
        if tensor.data_ptr() % _ALIGNMENT:
            tensor = tensor.clone()
            self.wait_for_torch()
        buffer = self._buffer(tensor.detach().reshape(-1).view(torch.uint8))
        if written:
            kinds = runtime.MemoryType.DEVICE_LOCAL, runtime.BufferUsage.DEFAULT
            copy = self.driver_device.allocator.allocate_buffer(*kinds, tensor.nbytes)
            self._copy(buffer, copy)
            buffer = copy
        return runtime.HalBufferView(buffer, list(tensor.shape), element)

    def _buffer(self, memory: torch.Tensor) -> Any:
        """Return the bytes ``memory`` as a buffer of IREE, which keeps them."""
        return self.driver_device.from_dlpack_capsule(memory.__dlpack__()).get_buffer()

    def _copy(self, source: Any, target: Any) -> None:
        """Copy a buffer on the device, and wait for it."""
        runtime = IREE_ENGINE.imported("iree.runtime")
        semaphore = self.driver_device.create_semaphore(0)
        done = runtime.HalFence.create_at(semaphore, 1)
        self.driver_device.queue_copy(source, target, runtime.HalFence.create_at(semaphore, 0), done)
        done.wait()


def written_arguments(function: func_d.FuncOp, signature: Signature) -> frozenset[int]:
    """Return the positions of the tensors that IREE may overwrite: IREE 3.13 does so where a value is updated.

    Inputs of operations of linalg are read only; of other uses nothing is assumed.
    """
    tensors = (at for at, kind in enumerate(signature.arguments) if isinstance(kind, TensorKind))
    return frozenset(at for at in tensors if not _is_read_only(function.arguments[at]))


def _is_read_only(value: ir.Value) -> bool:
    for use in value.uses:
        op = use.owner
        if op.name in _VIEWS:
            if not all(map(_is_read_only, op.results)):
                return False
        elif not op.name.startswith("linalg.") or use.operand_number >= len(op.operands) - len(op.results):
            return False
    return True
