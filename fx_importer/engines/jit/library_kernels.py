"""PyTorch's kernels of matrix products and convolutions, called by compiled code with memory in place."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from fx_importer.calls.memref import DTYPES

Bound = Callable[[], object]
"""Computes a result in place, from tensors that it holds."""


Pack = Callable[..., torch.Tensor]
"""Returns what a function, its first argument, makes of the others: of a weight, and of hashable values."""


class Kernel(Protocol):
    """What one call computes, into the last of its tensors."""

    def bind(self, tensors: Sequence[torch.Tensor], pack: Pack | None) -> Bound:
        """Return the function that computes it on the memory of ``tensors``; ``pack`` if the second one is a weight."""
        ...


@dataclass(frozen=True)
class Product:
    """A product of matrices, or of batches of them. Axes are named ``b``, ``m``, ``n`` and ``k``."""

    left: str
    right: str
    result: str
    accumulate: bool
    by_onednn: bool = False
    """Whether it is a product of float32 matrices that is worth a call of oneDNN (`smallest_onednn_work`)."""
    by_rows: bool = False
    """Whether `define_row_product` is faster than any library."""

    def bind(self, tensors: Sequence[torch.Tensor], pack: Pack | None) -> Bound:
        """Return the function of the operands and the result."""
        batch = "b" * ("b" in self.result)
        axes = (self.left, self.right, self.result)
        wanted = (batch + "mk", batch + "kn", batch + "mn")
        left, right, result = (
            each.permute([given.index(axis) for axis in order])
            for each, given, order in zip(tensors, axes, wanted, strict=True)
        )
        if self.by_onednn and right.numel():
            columns = right.t()
            if pack is not None and left.shape[0] < _MANY_ROWS and right.numel() <= _SMALL_WEIGHT:
                columns = pack(_pack_columns, columns, left.shape[0])
            multiply = partial(_MULTIPLY, left, columns, None, "none", [], "")
            write = result.add_ if self.accumulate else result.copy_
            return lambda: write(multiply())
        if self.accumulate:
            return partial(torch.baddbmm if batch else torch.addmm, result, left, right, out=result)
        return partial(torch.bmm if batch else torch.mm, left, right, out=result)


@dataclass(frozen=True)
class Convolution:
    """A convolution. Axes are named ``n``, ``g``, ``c``, ``f`` and, if spatial, ``s``; ``1`` is one of size 1."""

    input: str
    weight: str
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[int, ...]
    accumulate: bool
    output_padding: tuple[int, ...] | None = None
    """Of a transposed convolution, of one group; None of others."""
    bias: bool = False
    """Whether a bias is added before the result is rounded."""

    def bind(self, tensors: Sequence[torch.Tensor], pack: Pack | None) -> Bound:
        """Return the function of the input, the weight, the bias if there is one, and the result."""
        data, is_transposed = _order(self.input, "ngcs"), self.output_padding is not None
        filters = _order(self.weight, "gcfs1" if is_transposed else "gfcs1")
        operands = tensors[0], tensors[1], tensors[-1]
        x, w, y = (each.permute(order) for each, order in zip(operands, (data, filters, data), strict=True))
        bias = tensors[2].flatten() if self.bias else None
        w = w.flatten(-1 - self.weight.count("1"))
        groups = 1
        if "g" in self.weight:
            groups = w.shape[0]
            x, w, y = x.flatten(1, 2), w.flatten(0, 1), y.flatten(1, 2)
        if "f" not in self.weight:
            groups = w.shape[0]
            w = w.unsqueeze(1)
        if pack is not None and self.input == "nssc" and x.dtype in _packed_dtypes():
            where = (self.padding, self.strides, self.dilations, groups)
            return self._by_onednn(x, pack(_PACK_CONVOLUTION, w, *where, tuple(x.shape)), bias, y, where)
        where = (self.strides, self.padding, self.dilations)
        added = self.output_padding or (0,) * len(self.strides)
        convolve = partial(torch.convolution, x, w, bias, *where, is_transposed, added, groups)
        write = y.add_ if self.accumulate else y.copy_
        return lambda: write(convolve())

    def _by_onednn(
        self, x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, y: torch.Tensor, where: tuple[Any, ...]
    ) -> Bound:
        """Return the function with a weight that oneDNN has packed; it adds to the result in place."""
        add = partial(_ADD_CONVOLUTION, y, x, packed, bias, *where, "add", 1.0, None, [], None)
        if self.accumulate:
            return add

        def compute() -> object:
            y.zero_()
            return add()

        return compute


FEWEST_ROWS = 8
"""Rows of the left matrix from which on oneDNN is faster than BLAS; a dynamic number is taken to be larger."""
_MANY_ROWS = 64
"""Rows from which on oneDNN takes less than a tenth of its time to reorder the right matrix."""
_SMALL_WEIGHT = 1 << 20
"""In elements. Larger weights are not worth the memory of a reordered copy."""
_PACK_CONVOLUTION = torch.ops.mkldnn._reorder_convolution_weight.default
_MULTIPLY = torch.ops.mkldnn._linear_pointwise.default
_ADD_CONVOLUTION = torch.ops.mkldnn._convolution_pointwise_.binary


def _pack_columns(columns: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(columns.contiguous(), rows)


@functools.cache
def _packed_dtypes() -> tuple[torch.dtype, ...]:
    """Return the dtypes of convolutions that oneDNN computes on this machine with packed weights."""
    if not torch.backends.mkldnn.is_available():
        return ()
    supported = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    return (torch.float32, *(dtype for dtype, is_supported in supported.items() if is_supported()))


def packed_elements() -> list[str]:
    """Return the element types of convolutions that are faster with channels last."""
    return ["f64", "f32", *(name for name in ("bf16", "f16") if DTYPES[name][0] in _packed_dtypes())]


@functools.cache
def smallest_onednn_work() -> int | None:
    """Return the multiplications from which oneDNN is faster than MKL with float32 matrices; None if it is not.

    MKL has no AVX-512 on AMD's CPUs: from Zen 5 on, that is half of what oneDNN computes in a second. Zen 4 (family 25)
    computes such vectors by halves: there oneDNN is 5 % faster with large products, and its calls cost more.
    """
    with contextlib.suppress(OSError):
        processor = Path("/proc/cpuinfo").read_text()
        has_vectors = torch.backends.mkldnn.is_available() and "AVX512" in torch.backends.cpu.get_cpu_capability()
        if "AuthenticAMD" in processor and has_vectors:
            return 1 << (24 if re.search(r"^cpu family\s*: 25$", processor, re.MULTILINE) else 20)
    return None


def _order(axes: str, wanted: str) -> list[int]:
    return [position for axis in wanted for position, each in enumerate(axes) if each == axis]


@dataclass(frozen=True)
class LibraryFunction:
    """A kernel and what it takes: tensors of these element types and ranks, then indices, which it does not read."""

    kernel: Kernel
    elements: list[str]
    ranks: list[int]
    indices: int


class Kernels:
    """The callbacks of kernels, by name. They have to outlive the compiled code."""

    def __init__(self, functions: Mapping[str, LibraryFunction]):
        self.functions = functions
        self.weights: Collection[int] = ()
        """The addresses of weights."""
        self._packed: dict[tuple[object, ...], torch.Tensor] = {}
        self._failure: tuple[str, Exception] | None = None
        self.callbacks = {f"_mlir_ciface_{name}": self._callback(each) for name, each in functions.items()}
        """Callbacks by symbol."""

    def take_failure(self) -> tuple[str, Exception] | None:
        """Return, and reset, the kernel that failed in the last run and its exception."""
        failure, self._failure = self._failure, None
        return failure

    def _pack(self, pack: Pack, weight: torch.Tensor, *how: object) -> torch.Tensor:
        """Return what ``pack`` makes of ``weight``, once: the other operands may have new addresses in each call."""
        key = (pack, weight.data_ptr(), weight.dtype, weight.shape, weight.stride(), *how)
        packed = self._packed.get(key)
        if packed is None:
            self._packed[key] = packed = pack(weight, *how)
        return packed

    def _callback(self, function: LibraryFunction) -> Any:
        """Return a C function that takes addresses of descriptors, and calls the kernel with tensors on that memory."""
        cache: dict[tuple[bytes, ...], Bound] = {}
        dtypes = [DTYPES[each][0] for each in function.elements]
        ranks = function.ranks
        sizes = [8 * (3 + 2 * rank) for rank in ranks]

        def callback(*addresses: int) -> None:
            try:
                key = tuple(map(ctypes.string_at, addresses, sizes))
                bound = cache.get(key)
                if bound is None:
                    if len(cache) >= _CACHED:
                        cache.clear()
                    with torch.inference_mode(False):  # tensors of that mode could not be written outside of it
                        tensors = [*map(_tensor, addresses, dtypes, ranks)]
                        pack = self._pack if tensors[1].data_ptr() in self.weights else None
                        cache[key] = bound = function.kernel.bind(tensors, pack)
                bound()
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
