"""A device of PyTorch that has no hardware, ``pygpu``: it stands for a GPU where there is none.

Its tensors have addresses that the host cannot read, and storages, as on a GPU. Their bytes are in CPU tensors, on
which every operator computes. The device stays for the process: tests run it in one of their own.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

DEVICE = "pygpu"
_ADDRESSES = itertools.count(1 << 52, 1 << 32)
_MEMORIES: dict[int, torch.UntypedStorage] = {}
_CPU_KERNELS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_SET = torch.ops.aten.set_.source_Storage_storage_offset
_VIEWS = (_SET, torch.ops.aten.set_.source_Storage, torch.ops.aten.set_.source_Tensor)


def register() -> torch.library.Library:
    """Register the device with its operators, which are there while the result is."""
    _setup_privateuseone_for_python_backend(DEVICE)
    library = torch.library.Library("_", "IMPL", "PrivateUse1")
    library.fallback(_computed, "PrivateUse1")
    return library


def _computed(operator: Any, *args: Any, **kwargs: Any) -> Any:
    if operator is torch.ops.aten._copy_from.default:
        _on_cpu(args[1]).copy_(_on_cpu(args[0]))
        return args[1]
    if operator in _VIEWS or any(each.alias_info and not each.alias_info.is_write for each in operator._schema.returns):
        return operator.redispatch(_CPU_KERNELS, *args, **kwargs)  # a view: it reads no memory
    given: dict[int, Tensor] = {}

    def passed(value: Any) -> Any:
        there = _on_cpu(value)
        given[id(there)] = value
        return there

    def returned(tensor: Tensor) -> Tensor:
        if id(tensor) not in given:
            return _on_device(tensor)
        written = given[id(tensor)]
        if written.shape != tensor.shape:  # an empty one, for the operator to fill
            _place(written, tensor)
        return written

    made = operator(*pytree.tree_map(passed, args), **pytree.tree_map(passed, kwargs))
    return pytree.tree_map_only(Tensor, returned, made)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if not isinstance(value, Tensor) or value.device.type != DEVICE:
        return value
    memory = _MEMORIES[value.untyped_storage().data_ptr()]
    return torch.empty(0, dtype=value.dtype).set_(memory, value.storage_offset(), value.size(), value.stride())


def _on_device(tensor: Tensor) -> Tensor:
    made = torch._C._acc.create_empty_tensor((0,), tensor.dtype)  # pyright: ignore[reportAttributeAccessIssue]
    return _place(made, tensor)


def _place(made: Tensor, tensor: Tensor) -> Tensor:
    """Make ``made`` the tensor of the device whose bytes are those of ``tensor``."""
    address, memory = next(_ADDRESSES), tensor.untyped_storage()
    _MEMORIES[address] = memory
    storage = torch._C._construct_storage_from_data_pointer(address, torch.device(DEVICE, 0), memory.nbytes())
    return _SET.redispatch(_CPU_KERNELS, made, storage, tensor.storage_offset(), tensor.size(), tensor.stride())
