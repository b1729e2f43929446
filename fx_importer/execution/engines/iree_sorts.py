"""Loops that IREE compiles and runs wrongly."""

from __future__ import annotations

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations


def refuse_sorts(module: ir.Module) -> None:
    """Raise `UsageError` for the merge sort of linalg: passes, in which loops write elements of the rows.

    IREE 3.13 returns wrong numbers for it, copies beyond its buffers, or ends the process.
    """
    for passes in operations(module.operation, {"scf.while"}):
        loops = operations(passes, {"scf.for"})
        if _carries_tensors(passes) and any(_carries_tensors(each) and _inserts(each) for each in loops):
            raise UsageError(
                "the IREE backend does not run sorts of linalg (sort, argsort, median, topk of most of a long row): "
                "IREE 3.13 gives wrong numbers for their loops. Lower to output_type='stablehlo' or 'torch', whose "
                f"sorts it runs, or use backend='jit'; at {passes.location}"
            )


def _carries_tensors(loop: ir.Operation) -> bool:
    return any(isinstance(each.type, ir.RankedTensorType) for each in loop.results)


def _inserts(loop: ir.Operation) -> bool:
    return bool(operations(loop, {"tensor.insert"}))
