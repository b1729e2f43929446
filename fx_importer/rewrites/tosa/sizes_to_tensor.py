"""Lower the operators that take sizes known at run time, which TOSA's own conversions to tensor leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size, replace
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.walk import operations, rewrite


@rewrite("fx-importer-tosa-sizes-to-tensor")
def tosa_sizes_to_tensor(module: ir.Operation) -> None:
    """Replace the operators of `_LOWERINGS` whose shapes are not constants; read sizes by ``tensor.dim``.

    Tiles of tensors with dynamic sizes are replaced too: MLIR's conversion expands two dynamic axes into one.
    """
    known: dict[ir.Value, list[Size]] = {}
    for op in operations(module, _LOWERINGS):
        shapes = [operand for operand in op.operands if str(operand.type).startswith("!tosa.shape")]
        dynamic_tile = op.name == "tosa.tile" and not ir.RankedTensorType(op.results[0].type).has_static_shape
        if dynamic_tile or any(shape.owner.name != "tosa.const_shape" for shape in shapes):
            emit = LinalgOps.before(op)
            result = _LOWERINGS[op.name](emit, op, *(_sizes(shape, known) for shape in shapes))
            if result.type != op.results[0].type:
                result = emit.value("tensor.cast", op.results[0].type, result)
            replace(op, result)
    for shape in reversed(known):
        if next(shape.uses, None) is None:
            shape.owner.erase()


def _sizes(shape: ir.Value, known: dict[ir.Value, list[Size]]) -> list[Size]:
    """Return the sizes of a ``!tosa.shape``, computed where it is."""
    if shape not in known:
        op: ir.Operation = shape.owner
        if op.name == "tosa.const_shape":
            values = ir.DenseIntElementsAttr(op.attributes["values"])
            known[shape] = [value - (value >> 63 << 64) for value in values]  # the bindings return them unsigned
        elif op.name == "tosa.dim":
            axis = ir.IntegerAttr(op.attributes["axis"]).value
            known[shape] = [LinalgOps.before(op).size(op.operands[0], axis)]
        else:
            operands = [_sizes(operand, known) for operand in op.operands]
            emit = LinalgOps.before(op)
            if op.name == "tosa.concat_shape":
                known[shape] = [size for sizes in operands for size in sizes]
            else:
                name = _ARITHMETIC[op.name]
                known[shape] = [emit.index_op(name, *pair) for pair in zip(*operands, strict=True)]
    return known[shape]


_ARITHMETIC = {
    "tosa.add_shape": "addi",
    "tosa.sub_shape": "subi",
    "tosa.mul_shape": "muli",
    "tosa.div_floor_shape": "floordivsi",
    "tosa.div_ceil_shape": "ceildivsi",
    "tosa.mod_shape": "remsi",
    "tosa.min_shape": "minsi",
    "tosa.max_shape": "maxsi",
}
"""The operation of arith for each operation on sizes."""


def _reshape(emit: LinalgOps, op: ir.Operation, sizes: Sequence[Size]) -> ir.Value:
    x = op.operands[0]
    if -1 in sizes:
        count, rest = _product(emit, emit.sizes(x)), _product(emit, [size for size in sizes if size != -1])
        sizes = [emit.index_op("divsi", count, rest) if size == -1 else size for size in sizes]
    shape = emit.value("tensor.from_elements", f"tensor<{len(sizes)}xindex>", *map(emit.index, sizes))
    return emit.value("tensor.reshape", op.results[0].type, x, shape)


def _product(emit: LinalgOps, sizes: Sequence[Size]) -> Size:
    result: Size = 1
    for size in sizes:
        result = size if result == 1 else result if size == 1 else emit.index_op("muli", result, size)
    return result


def _slice(emit: LinalgOps, op: ir.Operation, starts: Sequence[Size], sizes: Sequence[Size]) -> ir.Value:
    """Emit a slice, whose size -1 extends to the end of an axis."""
    x = op.operands[0]
    sizes = [
        emit.index_op("subi", emit.size(x, axis), starts[axis]) if size == -1 else size
        for axis, size in enumerate(sizes)
    ]
    return emit.extract_slice(x, starts, sizes, range(len(sizes)))


def _tile(emit: LinalgOps, op: ir.Operation, multiples: Sequence[Size]) -> ir.Value:
    x = op.operands[0]
    have = emit.sizes(x)
    sizes = [_product(emit, pair) for pair in zip(have, multiples, strict=True)]

    def element(inside: LinalgOps, _: Sequence[ir.Value]) -> list[ir.Value]:
        position: list[Size] = []
        for axis, (size, multiple) in enumerate(zip(have, multiples, strict=True)):
            attributes = {"dim": inside.i64(axis)}
            index = inside.op("linalg.index", ["index"], (), attributes).result
            position.append(0 if size == 1 else index if multiple == 1 else inside.index_op("remsi", index, size))
        return [inside.extract(x, *position)]

    return emit.elementwise([], [emit.empty(sizes, ir.RankedTensorType(x.type).element_type)], element)[0]


def _pad(emit: LinalgOps, op: ir.Operation, widths: Sequence[Size]) -> ir.Value:
    """Emit a pad; ``widths`` has those before and after each axis in turn."""
    x, value = op.operands[0], emit.extract(op.operands[2], *([0] * ir.RankedTensorType(op.operands[2].type).rank))
    sizes = [_sum(emit, [emit.size(x, axis), *widths[2 * axis : 2 * axis + 2]]) for axis in range(len(widths) // 2)]
    around = emit.fill(value, emit.empty(sizes, value.type))
    return emit.insert_slice(x, around, widths[::2], emit.sizes(x))


def _sum(emit: LinalgOps, sizes: Sequence[Size]) -> Size:
    result: Size = 0
    for size in sizes:
        result = size if result == 0 else result if size == 0 else emit.index_op("addi", result, size)
    return result


_LOWERINGS: dict[str, Callable[..., ir.Value]] = {
    "tosa.pad": _pad,
    "tosa.reshape": _reshape,
    "tosa.slice": _slice,
    "tosa.tile": _tile,
}
