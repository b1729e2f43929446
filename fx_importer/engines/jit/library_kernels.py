"""PyTorch's kernels of matrix products and convolutions, called by compiled code with memory in place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from fx_importer.mlir.dtypes import DTYPES
from fx_importer.rewrites.llvm.library_functions import Convolution, Kernel, LibraryFunction, Product, packed_dtypes

Bound = Callable[[], object]
"""Computes a result in place, from tensors that it holds."""


Pack = Callable[..., torch.Tensor]
"""Returns what a function, its first argument, makes of the others: of a weight, and of hashable values."""


_MANY_ROWS = 64
"""Rows from which on oneDNN takes less than a tenth of its time to reorder the right matrix."""
_SMALL_WEIGHT, _SMALL_OF_MANY_ROWS = 1 << 20, 1 << 19
"""In elements. Larger weights are not worth the memory of a reordered copy."""
_PACK_CONVOLUTION = torch.ops.mkldnn._reorder_convolution_weight.default
_MULTIPLY = torch.ops.mkldnn._linear_pointwise.default
_ADD_CONVOLUTION = torch.ops.mkldnn._convolution_pointwise_.binary


def _pack_columns(columns: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(columns.contiguous(), rows)


def _order(axes: str, wanted: str) -> list[int]:
    return [position for axis in wanted for position, letter in enumerate(axes) if letter == axis]


def _bind_product(product: Product, tensors: Sequence[torch.Tensor], pack: Pack | None) -> Bound:
    """Return the function of the operands and the result."""
    batch = "b" * ("b" in product.result)
    axes = (product.left, product.right, product.result)
    wanted = (batch + "mk", batch + "kn", batch + "mn")
    left, right, result = (
        tensor.permute([present.index(axis) for axis in order])
        for tensor, present, order in zip(tensors, axes, wanted, strict=True)
    )
    if product.by_onednn and right.numel():
        columns = right.t()
        has_few = left.shape[0] < _MANY_ROWS
        if right.numel() > (_SMALL_WEIGHT if has_few else _SMALL_OF_MANY_ROWS):
            pack = None
        if pack is not None and product.static and left.is_contiguous() and result.is_contiguous():
            # A convolution of windows of one element adds to the result in place. Its layout depends on the rows.
            x, y = (tensor[None, :, None].permute(0, 3, 1, 2) for tensor in (left, result))
            where = ((0, 0), (1, 1), (1, 1), 1)
            packed = pack(_PACK_CONVOLUTION, columns[:, :, None, None], *where, tuple(x.shape))
            return _bind_packed(product.accumulate, x, packed, None, y, where)
        if pack is not None and has_few:
            columns = pack(_pack_columns, columns, left.shape[0])
        multiply = partial(_MULTIPLY, left, columns, None, "none", [], "")
        write = result.add_ if product.accumulate else result.copy_
        return lambda: write(multiply())
    if product.accumulate:
        return partial(torch.baddbmm if batch else torch.addmm, result, left, right, out=result)
    return partial(torch.bmm if batch else torch.mm, left, right, out=result)


def _bind_convolution(convolution: Convolution, tensors: Sequence[torch.Tensor], pack: Pack | None) -> Bound:
    """Return the function of the input, the weight, the bias if there is one, and the result."""
    data, is_transposed = _order(convolution.input, "ngcs"), convolution.output_padding is not None
    filters = _order(convolution.weight, "gcfs1" if is_transposed else "gfcs1")
    operands = tensors[0], tensors[1], tensors[-1]
    x, w, y = (operand.permute(order) for operand, order in zip(operands, (data, filters, data), strict=True))
    bias = tensors[2].flatten() if convolution.bias else None
    w = w.flatten(-1 - convolution.weight.count("1"))
    groups = 1
    if "g" in convolution.weight:
        groups = w.shape[0]
        x, w, y = x.flatten(1, 2), w.flatten(0, 1), y.flatten(1, 2)
    if "f" not in convolution.weight:
        groups = w.shape[0]
        w = w.unsqueeze(1)
    if pack is not None and convolution.input == "nssc" and x.dtype in packed_dtypes():
        where = (convolution.padding, convolution.strides, convolution.dilations, groups)
        packed = pack(_PACK_CONVOLUTION, w, *where, tuple(x.shape))
        return _bind_packed(convolution.accumulate, x, packed, bias, y, where)
    where = (convolution.strides, convolution.padding, convolution.dilations)
    added = convolution.output_padding or (0,) * len(convolution.strides)
    convolve = partial(torch.convolution, x, w, bias, *where, is_transposed, added, groups)
    write = y.add_ if convolution.accumulate else y.copy_
    return lambda: write(convolve())


def _bind_packed(
    accumulate: bool,
    x: torch.Tensor,
    packed: torch.Tensor,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    where: tuple[Any, ...],
) -> Bound:
    """Return the function with a weight that oneDNN has packed; it adds to the result in place."""
    add = partial(_ADD_CONVOLUTION, y, x, packed, bias, *where, "add", 1.0, None, [], None)
    if accumulate:
        return add

    def compute() -> object:
        y.zero_()
        return add()

    return compute


def _bind(kernel: Kernel, tensors: Sequence[torch.Tensor], pack: Pack | None) -> Bound:
    """Return the function that computes it on the memory of ``tensors``; ``pack`` if the second one is a weight."""
    if isinstance(kernel, Product):
        return _bind_product(kernel, tensors, pack)
    return _bind_convolution(kernel, tensors, pack)


class Kernels:
    """The callbacks of kernels, by name. They have to outlive the compiled code."""

    def __init__(self, functions: Mapping[str, LibraryFunction]):
        self.functions = functions
        self.weights: Collection[int] = ()
        """The addresses of weights."""
        self._packed: dict[tuple[object, ...], torch.Tensor] = {}
        self._failure: tuple[str, Exception] | None = None
        self.callbacks = {f"_mlir_ciface_{name}": self._callback(function) for name, function in functions.items()}
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
        dtypes = [DTYPES[element][0] for element in function.elements]
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
                        cache[key] = bound = _bind(function.kernel, tensors, pack)
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
