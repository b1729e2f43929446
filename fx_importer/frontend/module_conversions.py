"""Conversions of modules in the code of a model, such as ``self.layer.to(x.dtype)``.

torch swaps the memory of each parameter for it, which fails for the fake tensors that torch.export traces with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from fx_importer.frontend.example_inputs import state_of
from fx_importer.frontend.torch_patches import MODULE_CONVERSION, patched


@contextmanager
def conversions_traced() -> Iterator[None]:
    """Trace conversions of modules in the body: a converted parameter is a value of the program.

    Eager PyTorch keeps the converted parameters. The program converts them in each call, with the same results.
    """
    convert = MODULE_CONVERSION.resolved().read()
    converted: list[tuple[dict[str, Any], str, torch.Tensor, torch.Tensor]] = []

    def apply(module: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        tensors = state_of(module).values()
        if not any(isinstance(tensor, FakeTensor) for tensor in tensors):
            return convert(module, fn, recurse)
        for owner in module.modules() if recurse else (module,):
            stores: list[Any] = [owner._parameters, owner._buffers]
            for store in stores:
                for name, tensor in store.items():
                    if tensor is not None and (result := fn(tensor)) is not tensor:
                        converted.append((store, name, tensor, result))
                        store[name] = result
        return module

    with patched({MODULE_CONVERSION: apply}):
        try:
            yield
        finally:
            for store, name, tensor, result in reversed(converted):
                if store.get(name) is result:  # else torch has restored it
                    store[name] = tensor
