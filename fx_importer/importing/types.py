"""torch's types as types of the torch dialect, cached per context; ``sparse_tensor`` encodings of sparse layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.types import TorchTensor

_ROWS = {torch.sparse_csr: 0, torch.sparse_bsr: 0, torch.sparse_csc: 1, torch.sparse_bsc: 1}
"""The outer one of the two sparse axes of each compressed layout."""


def encoding(tensor: Tensor) -> str | None:
    """Return the text of the encoding of a (fake) tensor's layout, or None for a strided one.

    Batch axes come first and dense ones last, as in torch.

    Raises:
        TypeError: for a layout that MLIR cannot express.
    """
    if tensor.layout is torch.strided:
        return None
    if tensor.layout is not torch.sparse_coo and tensor.layout not in _ROWS:
        raise TypeError(f"a tensor stored as {tensor.layout} has no counterpart in the torch dialect")
    axes = [f"d{axis}" for axis in range(tensor.dim())]
    if tensor.layout is torch.sparse_coo:
        sparse = tensor.sparse_dim()
        levels = _coordinates(axes[:sparse], tensor.is_coalesced())
        width = 64
    else:
        batches = tensor.dim() - 2 - tensor.dense_dim()
        sparse = batches + 2
        levels = [f"{axis} : batch" for axis in axes[:batches]] + _compressed(tensor, axes[batches:sparse], batches)
        compressed_rows = _ROWS[tensor.layout] == 0
        width = 8 * (tensor.crow_indices() if compressed_rows else tensor.ccol_indices()).dtype.itemsize
    levels += [f"{axis} : dense" for axis in axes[sparse:]]
    stored = f"({', '.join(axes)}) -> ({', '.join(levels)})"
    return f"#sparse_tensor.encoding<{{ map = {stored}, posWidth = {width}, crdWidth = {width} }}>"


def _coordinates(axes: list[str], unique: bool) -> list[str]:
    """Return the levels of COO: one coordinate array per axis; coordinates may repeat unless coalesced."""
    last = len(axes) - 1
    levels = []
    for position, axis in enumerate(axes):
        repeats = position < last or not unique
        kind = "compressed" if position == 0 else "singleton"
        properties = ["nonunique"] * repeats + ["soa"] * (position > 0)
        levels.append(f"{axis} : {kind}" + (f"({', '.join(properties)})" if properties else ""))
    return levels


def _compressed(tensor: Tensor, axes: list[str], batches: int) -> list[str]:
    """Return the levels of CSR, CSC, BSR or BSC: dense outer axis, compressed inner axis, then the block."""
    outer = _ROWS[tensor.layout]
    if tensor.layout in (torch.sparse_csr, torch.sparse_csc):
        return [f"{axes[outer]} : dense", f"{axes[1 - outer]} : compressed"]
    sizes = tensor.values().shape[batches + 1 : batches + 3]
    blocks = [f"{axis} floordiv {size}" for axis, size in zip(axes, sizes, strict=True)]
    inside = [f"{axis} mod {size} : dense" for axis, size in zip(axes, sizes, strict=True)]
    return [f"{blocks[outer]} : dense", f"{blocks[1 - outer]} : compressed", *inside]


ELEMENT_TYPES: dict[torch.dtype, str] = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e5m2: "f8E5M2",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2fnuz: "f8E5M2FNUZ",
    torch.float8_e4m3fnuz: "f8E4M3FNUZ",
    torch.float8_e8m0fnu: "f8E8M0FNU",
    torch.int64: "si64",
    torch.int32: "si32",
    torch.int16: "si16",
    torch.int8: "si8",
    torch.uint64: "ui64",
    torch.uint32: "ui32",
    torch.uint16: "ui16",
    torch.uint8: "ui8",
    torch.bool: "i1",
    torch.complex32: "complex<f16>",
    torch.complex64: "complex<f32>",
    torch.complex128: "complex<f64>",
}
"""Element types of the torch dialect by dtype."""

DTYPE_CODES: dict[torch.dtype, int] = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex32: 8,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.float8_e5m2: 23,
    torch.float8_e4m3fn: 24,
    torch.float8_e5m2fnuz: 25,
    torch.float8_e4m3fnuz: 26,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
    torch.float8_e8m0fnu: 44,
}
"""``c10::ScalarType``, the enum value of a dtype in the torch dialect (c10/core/ScalarType.h)."""

LAYOUT_CODES: dict[torch.layout, int] = {
    torch.strided: 0,
    torch.sparse_coo: 1,
    torch.sparse_csr: 2,
    torch.sparse_csc: 4,
    torch.sparse_bsr: 5,
    torch.sparse_bsc: 6,
    torch.jagged: 7,
}
"""``c10::Layout`` (c10/core/Layout.h)."""

MEMORY_FORMAT_CODES: dict[torch.memory_format, int] = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}
"""``c10::MemoryFormat`` (c10/core/MemoryFormat.h)."""


_QUANTIZED = "give its integers, `int_repr()`, with scale and zero point, and dequantize in the model"
_HINTS = {
    torch.float4_e2m1fn_x2: "two values share a byte, so give it as `.view(torch.uint8)`",
    **dict.fromkeys((torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4), _QUANTIZED),
}


class UnknownDtype(Exception):
    """A dtype that the torch dialect does not have."""

    def __init__(self, dtype: torch.dtype):
        hint = _HINTS.get(dtype, "convert it, or view it as an integer type of the same size")
        super().__init__(f"{dtype} has no element type in the torch dialect: {hint}")


class TypeCache:
    """Cache of the types of one context. A tensor type is keyed by (dtype, shape, mutable) and parsed once."""

    def __init__(self, context: ir.Context):
        self.context = context
        self._tensors: dict[tuple[Any, ...], ir.Type] = {}
        self._parsed: dict[str, ir.Type] = {}

    def parse(self, asm: str) -> ir.Type:
        """Parse the type ``asm``."""
        type_ = self._parsed.get(asm)
        if type_ is None:
            type_ = self._parsed[asm] = ir.Type.parse(asm, self.context)
        return type_

    def tensor(
        self, dtype: torch.dtype, shape: Sequence[Any], *, mutable: bool = False, stored: str | None = None
    ) -> ir.Type:
        """Return ``!torch.vtensor<shape, dtype>``, or ``!torch.tensor`` for a ``mutable`` one.

        A symbolic dimension becomes ``?``. ``stored`` is the encoding of a sparse tensor. Raises `UnknownDtype`.
        """
        key = (dtype, mutable, stored, *[d if type(d) is int else static_dimension(d) for d in shape])
        type_ = self._tensors.get(key)
        if type_ is None:
            type_ = self._tensors[key] = self.parse(
                str(TorchTensor(tuple(key[3:]), self.element(dtype), mutable, stored or ""))
            )
        return type_

    def literal(self, dtype: torch.dtype, shape: Sequence[int]) -> ir.Type:
        """Return the builtin tensor type of a literal's attribute."""
        return self.parse(f"tensor<{''.join(f'{d}x' for d in shape)}{self.element(dtype)}>")

    def element(self, dtype: torch.dtype) -> str:
        """Return the element type of ``dtype`` as text. Raises `UnknownDtype`."""
        try:
            return ELEMENT_TYPES[dtype]
        except KeyError:
            raise UnknownDtype(dtype) from None

    def of(self, value: Any) -> ir.Type:
        """Return the type of an example value: a (fake) tensor, a (symbolic) scalar, None, or a list of tensors."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value.dtype, value.shape, stored=encoding(value))
        if value is None:
            return self.parse("!torch.none")
        if isinstance(value, (bool, torch.SymBool)):
            return self.parse("!torch.bool")
        if isinstance(value, (int, torch.SymInt)):
            return self.parse("!torch.int")
        if isinstance(value, (float, torch.SymFloat)):
            return self.parse("!torch.float")
        if isinstance(value, (list, tuple)):
            return self.list_of([self.of(element) for element in value])
        raise TypeError(f"a value of type {type(value).__name__} has no counterpart in the torch dialect")

    def list_of(self, elements: Sequence[ir.Type]) -> ir.Type:
        """Return the list type for elements of these types. Tensors of different types become ``vtensor``."""
        spelled = {str(element).removeprefix("!torch.") for element in elements}
        if len(spelled) == 1:
            return self.parse(f"!torch.list<{spelled.pop()}>")
        if all(name == "none" or name.startswith("vtensor") for name in spelled):
            return self.parse("!torch.list<optional<vtensor>>" if "none" in spelled else "!torch.list<vtensor>")
        raise TypeError(f"a list of {', '.join(sorted(spelled)) or 'nothing'} has no one element type")

    def tensor_to_vtensor_type(self, tensor: torch.Tensor) -> ir.Type:
        """Return the type of a tensor: torch-mlir's name of `of`."""
        return self.of(tensor)


def static_dimension(dim: Any) -> int | None:
    """Return the size of a dimension, or None if it is symbolic."""
    if isinstance(dim, torch.SymInt):
        return dim.node.maybe_as_int()
    return int(dim)
