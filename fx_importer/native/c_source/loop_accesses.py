"""The loads and stores of an innermost loop at one place, which C keeps in variables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.native.c_source.buffers import Buffer

_UNKNOWN_MEMORY = re.compile(r"b\d+")
"""The names of buffers that are one of several, which share memory with others."""


@dataclass(frozen=True)
class LoopAccesses:
    """Accesses that do not depend on the variable of the loop."""

    invariant: Sequence[ir.Operation]
    """Loads of memory that the loop does not write."""
    sum: tuple[ir.Operation, ir.Operation] | None
    """A load and the store at the end of the loop, at one place."""


def accesses_of(block: ir.Block, variable: ir.Value, buffers: Mapping[ir.Value, Buffer]) -> LoopAccesses | None:
    """Return the accesses of a loop without loops inside, whose ``buffers`` are known; None for others."""
    body = [op.operation for op in block]
    if any(op.regions or op.name in ("memref.copy", "func.call") for op in body[:-1]):
        return None
    loads = [op for op in body if op.name == "memref.load"]
    stores = [op for op in body if op.name == "memref.store"]
    memory = [op.operands[0] for op in loads] + [op.operands[1] for op in stores]
    if any(value not in buffers or _UNKNOWN_MEMORY.fullmatch(buffers[value].pointer) for value in memory):
        return None
    written = {buffers[op.operands[1]].pointer for op in stores}
    fixed = [op for op in loads if _is_outside(list(op.operands)[1:], block, variable)]
    invariant = [op for op in fixed if buffers[op.operands[0]].pointer not in written]
    return LoopAccesses(invariant, _sum(fixed, loads, stores, body, buffers))


def _sum(
    fixed: Sequence[ir.Operation],
    loads: Sequence[ir.Operation],
    stores: Sequence[ir.Operation],
    body: Sequence[ir.Operation],
    buffers: Mapping[ir.Value, Buffer],
) -> tuple[ir.Operation, ir.Operation] | None:
    if len(stores) != 1 or len(body) < 2 or body[-2] != stores[0]:
        return None
    (store,) = stores
    pointer = buffers[store.operands[1]].pointer
    same = [op for op in loads if buffers[op.operands[0]].pointer == pointer]
    if len(same) != 1 or same[0] not in fixed or list(same[0].operands) != list(store.operands)[1:]:
        return None
    return same[0], store


def _is_outside(values: Sequence[ir.Value], block: ir.Block, variable: ir.Value) -> bool:
    """Return whether no value depends on the variable: none is computed in the loop."""
    return all(
        value != variable if isinstance(value.owner, ir.Block) else value.owner.operation.block != block
        for value in values
    )
