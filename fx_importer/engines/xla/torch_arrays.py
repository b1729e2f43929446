"""Arrays of jax in the memory of PyTorch's tensors and the other way round, by DLPack, and the order of their streams.

It needs jax and PyTorch alone: `stablehlo_loader` has it in its file next to an artifact.
"""

from __future__ import annotations

import functools
import importlib
import sys
import weakref
from typing import Any


def wait_for_torch(torch: Any, device: Any) -> bool:
    """Make ``device`` read tensors of PyTorch only after the work that its current stream has now.

    Returns:
        Whether the stream has any: then one of the tensors has to be read with ``ordered=True``.
    """
    if device.platform == "cpu" or (stream := _current_stream(torch, device)).query():
        return False
    _external_stream(torch, device).wait_event(stream.record_event())
    return True


@functools.cache
def _external_stream(torch: Any, device: Any) -> Any:
    """Return the stream on which ``device`` waits for others, as PyTorch's."""
    return _stream(torch, device.local_hardware_id, device.get_stream_for_external_ready_events())


def _current_stream(torch: Any, device: Any) -> Any:
    """Return PyTorch's current stream, sooner than `torch.cuda.current_stream`."""
    index = device.local_hardware_id
    return _stream(torch, index, torch._C._cuda_getCurrentRawStream(index))


@functools.lru_cache(64)
def _stream(torch: Any, index: int, handle: int) -> Any:
    """Return the stream of CUDA's ``handle`` on the device ``index``, as PyTorch's."""
    device = torch.device("cuda", index)
    return torch.cuda.ExternalStream(handle, device) if handle else torch.cuda.default_stream(device)


@functools.cache
def torch_device(torch: Any, device: Any) -> Any:
    """Return PyTorch's device of the same number as jax's."""
    return torch.device("cpu") if device.platform == "cpu" else torch.device("cuda", device.local_hardware_id)


class TorchReader:
    """Makes arrays of jax in the memory of tensors of PyTorch, those that a device gets for one argument.

    `jax.dlpack.from_dlpack` does, in ten times the time, and waits for the stream once for each tensor. The array of
    the last tensor is used again while the tensor lives: making another one takes a fourth of a short call's time.
    """

    def __init__(self, torch: Any, device: Any):
        self._torch, self._device = torch, device
        self._export = torch.utils.dlpack.to_dlpack
        self._make = sys.modules["jaxlib._jax"].dlpack_managed_tensor_to_buffer
        host = device.platform == "cpu"
        self._stream = None if host else _external_stream(torch, device).cuda_stream
        release = tuple(map(int, importlib.import_module("jaxlib").__version__.split(".")[:2]))
        self._more = () if release < (0, 11) else (1 if host else 2,)  # DLPack's number of the kind of device
        self._last: tuple[Any, int, Any] | None = None  # a weak reference to a tensor, its address, its array

    def __call__(self, tensor: Any, ordered: bool) -> Any:
        """Return the array of a tensor, ``ordered`` after `wait_for_torch`."""
        if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
            copy = tensor.detach().resolve_conj().resolve_neg().contiguous()
            return self._array(copy, wait_for_torch(self._torch, self._device) or ordered)
        address, last = tensor.data_ptr(), self._last
        if not ordered and last is not None and last[0]() is tensor and last[1] == address:
            return last[2]
        array = self._array(tensor.detach(), ordered)  # an alias: the array must not keep the tensor itself alive
        if address and array.unsafe_buffer_pointer() == address:  # not a copy, which jax makes of what is not aligned
            self._last = weakref.ref(tensor, self._forget), address, array
        return array

    def _array(self, tensor: Any, ordered: bool) -> Any:
        return self._make(self._export(tensor), self._device, self._stream if ordered else None, None, *self._more)

    def _forget(self, reference: Any) -> None:
        if self._last is not None and self._last[0] is reference:
            self._last = None


def to_torch(torch: Any, array: Any, device: Any) -> Any:
    """Return a tensor of PyTorch in the memory of an array of jax; its current stream waits until it is computed."""
    if device.platform == "cpu":
        array.block_until_ready()
        stream = None
    else:
        stream = torch._C._cuda_getCurrentRawStream(device.local_hardware_id) or 1  # DLPack's number of stream 0
    export = sys.modules["jaxlib._jax"].buffer_to_dlpack_managed_tensor
    return torch.utils.dlpack.from_dlpack(export(array, stream=stream))
