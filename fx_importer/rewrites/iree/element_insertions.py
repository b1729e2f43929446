"""Insertions of single elements, which IREE writes to wrong places."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-elements-to-slices", ops=("tensor.insert",), emitter=LinalgOps)
def elements_to_slices(op: ir.Operation, emit: LinalgOps) -> None:
    """Insert elements of tensors as slices of one element.

    IREE 3.13 stores an element of a tensor of several axes elsewhere, without an error.
    """
    element, target, *indices = op.operands
    if len(indices) < 2:  # which IREE writes right
        return
    ones = [1] * len(indices)
    slice_ = emit.value("tensor.from_elements", emit.tensor(ones, element.type), element)
    op.result.replace_all_uses_with(emit.insert_slice(slice_, target, indices, ones))
    op.erase()
