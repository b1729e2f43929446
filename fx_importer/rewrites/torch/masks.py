"""Rejection of masks among indices: the C++ lowerings read their elements as the indices 0 and 1."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer
from fx_importer.mlir.types import TorchTensor
from fx_importer.mlir.walk import rewrite

INDEXING = (
    *("torch.aten.index.Tensor", "torch.aten.index.Tensor_hacked_twin"),
    *("torch.aten._unsafe_index.Tensor", "torch.aten._unsafe_index.Tensor_hacked_twin"),
    *("torch.aten.index_put", "torch.aten.index_put.hacked_twin"),
    *("torch.aten._unsafe_index_put", "torch.aten._unsafe_index_put.hacked_twin"),
    *("torch.aten._index_put_impl", "torch.aten._index_put_impl.hacked_twin"),
)
"""Operators whose second operand is a list of indices or masks."""


@rewrite("fx-importer-reject-masks", ops=INDEXING)
def reject_masks(op: ir.Operation) -> None:
    """Report an error for an operator with a mask among its indices."""
    indices = op.operands[1]
    if producer(indices) == "torch.prim.ListConstruct" and any(map(_is_mask, indices.owner.operands)):
        name = op.name.removeprefix("torch.").removesuffix(".hacked_twin").removesuffix("_hacked_twin")
        op.location.emit_error(f"{name} selects by a mask, which its lowering would read as the indices 0 and 1")


def _is_mask(value: ir.Value) -> bool:
    tensor = TorchTensor.read(value.type)
    return tensor is not None and tensor.element in ("i1", "ui8")
