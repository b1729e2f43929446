"""Tensors of PyTorch in the memory of a device of IREE, passed by DLPack: they do not go through the host."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from fx_importer.calls.call_signature import Signature, TensorKind
from fx_importer.engines.iree.engine import IREE_ENGINE
from fx_importer.mlir.bindings import func_d, ir

_ALIGNMENT = 64
"""Bytes to which IREE takes the addresses of buffers to be aligned."""
_VIEWS = frozenset(("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast", "tensor.extract_slice"))


@dataclass
class SharedDevice:
    """A device that PyTorch and IREE have in common."""

    device: torch.device
    code: int
    """DLPack's code for the type of the device."""
    driver_device: Any
    """The device in IREE."""
    pending: list[tuple[Any, Any]] = field(default_factory=list["tuple[Any, Any]"])
    """Results of IREE that PyTorch has yet to copy, each with an event of the copy."""

    def has(self, value: object) -> bool:
        """Return whether ``value`` is a tensor on the device. One without elements has no memory."""
        if not isinstance(value, torch.Tensor) or not value.numel() or value.device.type != self.device.type:
            return False
        return (value.device.index or 0) == self.device.index

    def wait_for_torch(self) -> None:
        """Wait until PyTorch's current stream has written what a call reads: IREE 3.13 waits for no stream of CUDA."""
        if self.device.type != "cpu":
            torch.accelerator.current_stream(self.device).synchronize()
            self.pending[:] = [(event, view) for event, view in self.pending if not event.query()]

    def taken(self, tensor: torch.Tensor, element: Any, *, written: bool) -> Any:
        """Return the contiguous ``tensor`` as a buffer view; a copy on the device if the program may write to it."""
        runtime = IREE_ENGINE.imported("iree.runtime")
        if tensor.data_ptr() % _ALIGNMENT:
            tensor = tensor.clone()
            self.wait_for_torch()
        memory = tensor.detach().reshape(-1).view(torch.uint8)
        buffer = self.driver_device.from_dlpack_capsule(memory.__dlpack__()).get_buffer()
        if written:
            kinds = runtime.MemoryType.DEVICE_LOCAL, runtime.BufferUsage.DEFAULT
            copy = self.driver_device.allocator.allocate_buffer(*kinds, memory.nbytes)
            semaphore = self.driver_device.create_semaphore(0)
            done = runtime.HalFence.create_at(semaphore, 1)
            self.driver_device.queue_copy(buffer, copy, runtime.HalFence.create_at(semaphore, 0), done)
            done.wait()
            buffer = copy
        return runtime.HalBufferView(buffer, list(tensor.shape), element)

    def returned(self, view: Any, dtype: torch.dtype) -> torch.Tensor:
        """Return a buffer view that a call returned as a tensor in PyTorch's own memory, copied on the device.

        IREE's memory may be a constant or state, and is reused when it is freed, while PyTorch's stream still reads it.
        """
        shape = list(view.shape)
        if not math.prod(shape):
            return torch.empty(shape, dtype=dtype, device=self.device)
        runtime = IREE_ENGINE.imported("iree.runtime")
        buffer = view.get_buffer()
        memory = runtime.HalBufferView(buffer, [math.prod(shape) * dtype.itemsize], runtime.HalElementType.UINT_8)
        capsule = self.driver_device.create_dlpack_capsule(memory, self.code, self.device.index)
        tensor = torch.from_dlpack(capsule).clone().view(dtype).reshape(shape)
        if self.device.type != "cpu":
            self.pending.append((torch.accelerator.current_stream(self.device).record_event(), view))
        return tensor


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
