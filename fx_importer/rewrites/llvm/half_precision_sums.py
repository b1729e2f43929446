"""Products and convolutions of 16-bit floats: they begin with a bias, sum in float32, and round their results."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer, terminator
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.indexing_maps import indexing_maps
from fx_importer.mlir.walk import operations

_GROUPED = "linalg.conv_2d_ngchw_gfchw"
_GROUPS = [[0], [1, 2], [3], [4]]


def rounding(value: ir.Value, element: str) -> ir.Operation | None:
    """Return the only user of ``value`` if it only truncates to ``element``."""
    users = [use.owner for use in value.uses]
    if len(users) != 1 or users[0].name != "linalg.generic" or not _converts(users[0], "arith.truncf"):
        return None
    (user,) = users
    return user if user.operands[0] == value and _element(user.results[0]) == element else None


def extended_bias(begin: ir.Value, axes: tuple[int, ...], element: str) -> ir.Operation | None:
    """Return what extends a tensor of ``element``, which ``begin`` then repeats along all axes but ``axes``."""
    extended = _broadcast_along(begin, axes)
    if extended is None or producer(extended) != "linalg.generic" or not _converts(extended.owner, "arith.extf"):
        return None
    return extended.owner if _element(extended.owner.operands[0]) == element else None


def round_by_groups(module: ir.Operation) -> None:
    """Let grouped convolutions of static sizes be rounded, and begin with a bias, by group and channel.

    Programs join these two axes before they round, and separate them after they broadcast a bias.
    """
    for op in operations(module.operation, (_GROUPED,)):
        image, _, begin = op.operands
        result, users = op.results[0], [use.owner for use in op.results[0].uses]
        if not ir.RankedTensorType(result.type).has_static_shape or len(users) != 1:
            continue
        (joined,) = users
        rounded = rounding(joined.results[0], _element(image)) if joined.name == "tensor.collapse_shape" else None
        if rounded is None:
            continue
        if producer(begin) == "linalg.fill":
            emit = LinalgOps.before(op)
            empty = emit.empty(ir.RankedTensorType(begin.type).shape, ir.RankedTensorType(begin.type).element_type)
            op.operands[2] = emit.fill(begin.owner.operands[0], empty)
        elif producer(begin) == "tensor.expand_shape":
            extended = extended_bias(begin.owner.operands[0], (1,), _element(image))
            if extended is not None:
                op.operands[2] = _broadcast_by_group(LinalgOps.before(op), extended.operands[0], begin.type)
        emit = LinalgOps.before(rounded)
        kind = ir.RankedTensorType(rounded.results[0].type)
        truncated = _converted(emit, "arith.truncf", result, kind.element_type)
        rounded.results[0].replace_all_uses_with(emit.collapse_shape(truncated, _GROUPS, kind))
        rounded.erase()
        joined.erase()


def _broadcast_by_group(emit: LinalgOps, bias: ir.Value, to: ir.Type) -> ir.Value:
    """Emit the tensor ``[n, g, c, h, w]`` of float32 that ``bias`` is the channels of."""
    kind = ir.RankedTensorType(to)
    extended = _converted(emit, "arith.extf", emit.expand_shape(bias, [[0, 1]], kind.shape[1:3]), kind.element_type)
    maps = [emit.select_axes(5, (1, 2)), emit.select_axes(5, range(5))]
    empty = emit.empty(kind.shape, kind.element_type)
    return emit.generic([extended], [empty], maps, lambda _, elements: elements[:1])[0]


def _converted(emit: LinalgOps, name: str, tensor: ir.Value, element: ir.Type) -> ir.Value:
    empty = emit.empty(ir.RankedTensorType(tensor.type).shape, element)
    return emit.elementwise([tensor], [empty], lambda inside, values: [inside.value(name, element, values[0])])[0]


def _broadcast_along(value: ir.Value, axes: tuple[int, ...]) -> ir.Value | None:
    """Return the tensor along ``axes`` that ``value`` repeats along all others; None for other values."""
    if producer(value) not in ("linalg.broadcast", "linalg.generic") or len(value.owner.operands) != 2:
        return None
    op = value.owner
    rank = ir.ShapedType(value.type).rank
    if op.name == "linalg.broadcast":
        added = [dim for dim in range(rank) if dim not in axes]
        return op.operands[0] if list(ir.DenseI64ArrayAttr(op.attributes["dimensions"])) == added else None
    body = op.regions[0].blocks[0]
    maps = indexing_maps(op)
    read = ir.AffineMap.get(rank, 0, [ir.AffineExpr.get_dim(axis, op.context) for axis in axes], op.context)
    same = maps == [read, ir.AffineMap.get_identity(rank, op.context)]
    return op.operands[0] if same and terminator(body).operands[0] == body.arguments[0] else None


def _converts(op: ir.Operation, name: str) -> bool:
    """Return whether a ``linalg.generic`` converts each element of its only input by the operation ``name``."""
    body = list(op.regions[0].blocks[0])
    maps = indexing_maps(op)
    return (
        len(op.operands) == len(body) == 2
        and body[0].operation.name == name
        and body[0].operands[0] == op.regions[0].blocks[0].arguments[0]
        and all(map_ == ir.AffineMap.get_identity(map_.n_dims, map_.context) for map_ in maps)
    )


def _element(value: ir.Value) -> str:
    return str(ir.ShapedType(value.type).element_type)
