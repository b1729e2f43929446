"""PyTorch's kernels of matrix products and convolutions, called by compiled code with memory in place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from fx_importer.execution.memref import DTYPES


class Kernel(Protocol):
    """What one call computes, into the last of its tensors."""

    def bind(self) -> Callable[..., None]:
        """Return the function that computes it. It may keep what it derives of constants."""
        ...


@dataclass(frozen=True)
class Product:
    """A product of matrices, or of batches of them. Axes are named ``b``, ``m``, ``n`` and ``k``."""

    left: str
    right: str
    result: str
    accumulate: bool

    def bind(self) -> Callable[..., None]:
        """Return the function of the operands and the result."""
        batch = "b" * ("b" in self.result)
        orders = [
            [axes.index(axis) for axis in wanted]
            for axes, wanted in ((self.left, batch + "mk"), (self.right, batch + "kn"), (self.result, batch + "mn"))
        ]
        multiply: Any = torch.bmm if batch else torch.mm
        add: Any = torch.baddbmm if batch else torch.addmm
        accumulate = self.accumulate

        def run(left: torch.Tensor, right: torch.Tensor, result: torch.Tensor) -> None:
            a, b, c = (each.permute(order) for each, order in zip((left, right, result), orders, strict=True))
            if accumulate:
                add(c, a, b, out=c)
            else:
                multiply(a, b, out=c)

        return run


@dataclass(frozen=True)
class Convolution:
    """A convolution without padding. Axes are named ``n``, ``g``, ``c``, ``f`` and, if spatial, ``s``."""

    input: str
    weight: str
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    accumulate: bool

    def bind(self) -> Callable[..., None]:
        """Return the function of the input, the weight and the result."""
        data = _order(self.input, "ngcs")
        weight = _order(self.weight, "gfcs")
        grouped, depthwise = "g" in self.weight, "f" not in self.weight
        rank = len(self.strides)

        def run(x: torch.Tensor, w: torch.Tensor, result: torch.Tensor) -> None:
            x, w, y = x.permute(data), w.permute(weight), result.permute(data)
            groups = 1
            if grouped:
                groups = w.shape[0]
                x, w, y = x.flatten(1, 2), w.flatten(0, 1), y.flatten(1, 2)
            if depthwise:
                groups = w.shape[0]
                w = w.unsqueeze(1)
            found = torch.convolution(x, w, None, self.strides, (0,) * rank, self.dilations, False, (0,) * rank, groups)
            if self.accumulate:
                y.add_(found)
            else:
                y.copy_(found)

        return run


def _order(axes: str, wanted: str) -> list[int]:
    return [position for axis in wanted for position, each in enumerate(axes) if each == axis]


@dataclass(frozen=True)
class Function:
    """A kernel and what it takes: tensors of these element types and ranks, then indices, which it does not read."""

    kernel: Kernel
    elements: list[str]
    ranks: list[int]
    indices: int


class Kernels:
    """The callbacks of kernels, by name. They have to outlive the compiled code."""

    def __init__(self, functions: Mapping[str, Function]):
        self.functions = functions
        self._failure: tuple[str, Exception] | None = None
        self.callbacks = {f"_mlir_ciface_{name}": self._callback(each) for name, each in functions.items()}
        """Callbacks by symbol."""

    def take_failure(self) -> tuple[str, Exception] | None:
        """Return, and reset, the kernel that failed in the last run and its exception."""
        failure, self._failure = self._failure, None
        return failure

    def _callback(self, function: Function) -> Any:
        """Return a C function that takes addresses of descriptors, and calls the kernel with tensors on that memory."""
        cache: dict[tuple[bytes, ...], list[torch.Tensor]] = {}
        run = function.kernel.bind()
        dtypes = [DTYPES[each][0] for each in function.elements]
        ranks = function.ranks
        sizes = [8 * (3 + 2 * rank) for rank in ranks]

        def callback(*addresses: int) -> None:
            try:
                key = tuple(map(ctypes.string_at, addresses, sizes))
                tensors = cache.get(key)
                if tensors is None:
                    if len(cache) >= _CACHED:
                        cache.clear()
                    with torch.inference_mode(False):  # tensors of that mode could not be written outside of it
                        cache[key] = tensors = [*map(_tensor, addresses, dtypes, ranks)]
                run(*tensors)
            except Exception as error:  # must not propagate through compiled code
                self._failure = type(function.kernel).__name__, error

        return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(ranks), *[ctypes.c_int64] * function.indices)(callback)


_CACHED = 1024
"""How many signatures of a kernel are kept, by addresses and sizes."""


def _tensor(address: int, dtype: torch.dtype, rank: int) -> torch.Tensor:
    """Return a tensor on the memory of the descriptor at ``address``, which it does not keep alive."""
    numbers = (ctypes.c_int64 * (3 + 2 * rank)).from_address(address)
    sizes, strides = list(numbers[3 : 3 + rank]), list(numbers[3 + rank :])
    if 0 in sizes:
        return torch.empty(sizes, dtype=dtype)
    count = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    start = numbers[1] + numbers[2] * dtype.itemsize
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(start)
    return torch.frombuffer(memory, dtype=dtype).as_strided(sizes, strides)
