"""Loop interchange of contractions for caches and vector units."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, replace
from fx_importer.mlir.indexing_maps import indexing_maps
from fx_importer.mlir.walk import operations, rewrite


@rewrite("fx-importer-interchange-loops")
def interchange_loops(module: ir.Operation) -> None:
    """Make the loop with stride-1 accesses the innermost one of each contraction.

    With ``k`` innermost, ``C[m, n] += A[m, k] * B[k, n]`` reads the columns of B, and an ordered sum of floats cannot
    be vectorized. With ``n`` innermost it reads rows and vectorizes, and every sum keeps its order.
    """
    for op in operations(module.operation, ("linalg.generic",)):
        kinds = [str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])]
        maps = indexing_maps(op)
        order = _best_order(["parallel" in kind for kind in kinds], maps)
        # linalg.index in the body refers to loops by their numbers.
        if order == list(range(len(kinds))) or uses_loop_index(op):
            continue
        with op.context:
            permute_loops(op, order, maps)


def row_order(op: ir.Operation, operand: int, *, unit_axes: bool = False) -> tuple[int, ...] | None:
    """Return the axis permutation of an operand with which a contraction reads along rows; None for no change.

    ``C[m, n] += A[m, k] * B[n, k]`` reads the columns of B or of C, whichever loop is innermost. With B as ``[k, n]``,
    `interchange_loops` makes all accesses along rows. With ``unit_axes``, B may have axes of size 1 too.
    """
    if op.name != "linalg.generic" or operand >= len(op.operands) - len(op.results) or len(op.operands) < 3:
        return None
    kinds = [str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])]
    maps = indexing_maps(op)
    accepted = (ir.AffineDimExpr, ir.AffineConstantExpr) if unit_axes else ir.AffineDimExpr
    if (
        not kinds
        or "parallel" in kinds[-1]
        or not all(isinstance(result, accepted) for result in maps[operand].results)
    ):
        return None
    axes = [result.position if isinstance(result, ir.AffineDimExpr) else None for result in maps[operand].results]
    read = [axis for axis in axes if axis is not None]
    written = list(maps[-1].results)
    if not read or not written or not isinstance(written[-1], ir.AffineDimExpr) or "parallel" in kinds[read[-1]]:
        return None
    row = ir.AffineDimExpr(written[-1]).position
    if axes.count(row) != 1 or uses_loop_index(op):
        return None
    last = axes.index(row)
    return (*(axis for axis in range(len(axes)) if axis != last), last)


def transposed_axes(op: ir.Operation) -> tuple[int, ...] | None:
    """Return the operand axes in result order if ``op`` only transposes its operand; unit axes may be last."""
    if op.name != "linalg.generic" or len(op.operands) != 2 or len(op.results) != 1:
        return None
    read, written = indexing_maps(op)
    (copied, _), (*before, end) = op.regions[0].blocks[0].arguments, op.regions[0].blocks[0]
    if before or end.operands[0] != copied or written != ir.AffineMap.get_identity(written.n_dims, op.context):
        return None
    axis_of = {
        result.position: axis for axis, result in enumerate(read.results) if isinstance(result, ir.AffineDimExpr)
    }
    rest = [axis for axis in range(len(read.results)) if axis not in axis_of.values()]
    if sorted(axis_of) != list(range(read.n_dims)) or any(
        ir.ShapedType(op.operands[0].type).shape[axis] != 1 for axis in rest
    ):
        return None
    return (*(axis_of[loop] for loop in range(read.n_dims)), *rest)


def permute_operand_map(op: ir.Operation, operand: int, order: Sequence[int]) -> None:
    """Permute the indexing map of an operand of a ``linalg.generic`` by ``order``. The caller replaces the operand."""
    maps = list(ir.ArrayAttr(op.attributes["indexing_maps"]))
    old = ir.AffineMapAttr(maps[operand]).value
    new = ir.AffineMap.get(old.n_dims, 0, [old.results[axis] for axis in order])
    maps[operand] = ir.AffineMapAttr.get(new)
    op.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)


def uses_loop_index(op: ir.Operation) -> bool:
    """Whether the body of a ``linalg.generic`` refers to loops by their numbers."""
    return any(inner.name == "linalg.index" for inner in op.regions[0].blocks[0])


def _best_order(parallel: Sequence[bool], maps: Sequence[ir.AffineMap]) -> list[int]:
    """Return the best order of the loops, outermost first."""
    loops = list(range(len(parallel)))
    if all(parallel) or not any(parallel) or parallel[-1]:
        return loops
    # How many operands each loop accesses along rows: their last index depends on it.
    rows = [sum(bool(map_.results) and _depends_on(map_.results[-1], loop) for map_ in maps) for loop in loops]
    best = max((loop for loop in loops if parallel[loop]), key=lambda loop: rows[loop])
    most = max(rows)
    if rows[best] < most or (len(maps) == 2 and any(rows[loop] == most for loop in loops if not parallel[loop])):
        return loops  # an op with one input reads more than it writes
    outer = [loop for loop in loops if parallel[loop] and loop != best]
    return [*outer, *(loop for loop in loops if not parallel[loop]), best]


def _depends_on(expression: ir.AffineExpr, loop: int) -> bool:
    if isinstance(expression, ir.AffineDimExpr):
        return expression.position == loop
    if isinstance(expression, ir.AffineBinaryExpr):
        return _depends_on(expression.lhs, loop) or _depends_on(expression.rhs, loop)
    return False


def permute_loops(op: ir.Operation, order: Sequence[int], maps: Sequence[ir.AffineMap]) -> None:
    """Permute the loops of a ``linalg.generic`` with the indexing ``maps``; ``order`` lists the old loop numbers."""
    count = len(order)
    renamed = ir.AffineMap.get(count, 0, [ir.AffineExpr.get_dim(order.index(loop)) for loop in range(count)])
    op.attributes["indexing_maps"] = ir.ArrayAttr.get(
        [
            ir.AffineMapAttr.get(ir.AffineMap.get(count, 0, [result.compose(renamed) for result in map_.results]))
            for map_ in maps
        ]
    )
    kinds = ir.ArrayAttr(op.attributes["iterator_types"])
    op.attributes["iterator_types"] = ir.ArrayAttr.get([kinds[loop] for loop in order])


@rewrite("fx-importer-read-initial-values")
def read_initial_values(module: ir.Operation) -> None:
    """Turn initial values that elementwise ops read, as a sum over no axes does, into additional inputs.

    Otherwise MLIR would fuse the op with one that has loops, and accumulate in each iteration.
    """
    for op in operations(module.operation, ("linalg.generic",)):
        kinds = [str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])]
        body = op.regions[0].blocks[0]
        inputs = len(op.operands) - len(op.results)
        if not op.results or any("reduction" in kind for kind in kinds):
            continue
        if not any(list(argument.uses) for argument in list(body.arguments)[inputs:]):
            continue
        maps = list(ir.ArrayAttr(op.attributes["indexing_maps"]))
        begins = list(op.operands)[inputs:]
        emit = Emitter.before(op)
        attributes = {
            "indexing_maps": ir.ArrayAttr.get([*maps, *maps[inputs:]], module.context),
            "iterator_types": op.attributes["iterator_types"],
            "operandSegmentSizes": emit.segments(len(op.operands), len(begins)),
        }
        types = [result.type for result in op.results]
        new = emit.op("linalg.generic", types, [*op.operands, *begins], attributes, regions=1)
        for argument in list(body.arguments)[inputs:]:
            body.add_argument(argument.type, op.location)
        body.append_to(new.regions[0])
        replace(op, *new.results)
