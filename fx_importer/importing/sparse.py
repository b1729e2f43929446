"""``sparse_tensor`` encodings of torch's sparse layouts, with levels from the slowest to the fastest."""

from __future__ import annotations

import torch
from torch import Tensor

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
