"""Affine maps as expressions of C."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.native.c_source.buffers import Number, plus, times
from fx_importer.native.c_source.scalars import paren


def affine_text(op: ir.Operation, operands: Sequence[str]) -> str:
    """Return the result of ``affine.apply``, ``affine.min`` or ``affine.max``."""
    affine_map = ir.AffineMapAttr(op.attributes["map"]).value
    results = [str(_expression(result, operands, affine_map.n_dims)) for result in affine_map.results]
    if op.name == "affine.apply":
        return results[0]
    symbol = "<" if op.name == "affine.min" else ">"
    return functools.reduce(
        lambda one, other: f"({paren(one)} {symbol} {paren(other)} ? {paren(one)} : {paren(other)})", results
    )


def _expression(node: ir.AffineExpr, operands: Sequence[str], dims: int) -> Number:
    if isinstance(node, ir.AffineConstantExpr):
        return node.value
    if isinstance(node, ir.AffineDimExpr):
        return str(operands[node.position])
    if isinstance(node, ir.AffineSymbolExpr):
        return str(operands[dims + node.position])
    binary = ir.AffineBinaryExpr(node)
    left, right = (_expression(part, operands, dims) for part in (binary.lhs, binary.rhs))
    if isinstance(node, ir.AffineAddExpr):
        return plus(left, right)
    if isinstance(node, ir.AffineMulExpr):
        return times(left, right)
    if isinstance(node, ir.AffineFloorDivExpr):
        return f"fx_index_floor_div({left}, {right})"
    if isinstance(node, ir.AffineCeilDivExpr):
        return f"fx_index_ceil_div({left}, {right})"
    if isinstance(node, ir.AffineModExpr):
        return f"{paren(str(left))} - {paren(str(right))} * fx_index_floor_div({left}, {right})"
    raise UsageError(f"C source has no form of the affine expression {node}")
