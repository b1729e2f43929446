"""Softmaxes in the form that IREE vectorizes."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import attributes_of, is_used, producer, replace
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.indexing_maps import indexing_maps
from fx_importer.mlir.walk import operations, rewrite

_READERS = ["arith.addf", "arith.divf"]
"""The operations of the readers of the exponentials of a softmax: the sum, and the quotient."""


@rewrite("fx-importer-split-softmaxes")
def split_softmaxes(module: ir.Operation) -> None:
    """Let the sum and the quotient of each softmax in ``module``, of linalg, compute the exponentials themselves.

    The numbers stay the same. IREE 3.13 fuses the operations of a softmax. With a dynamic number of rows, the fused
    kernel recomputes the row maximum for every 8 elements, and in float16 it does not link. This form is not fused: the
    maximum is one kernel, and the sum with the quotient another.
    """
    generics = operations(module, {"linalg.generic"})
    for exponential in [generic for generic in generics if _body(generic) == "math.exp"]:
        if producer(exponential.operands[0]) != "linalg.generic":
            continue
        difference = exponential.operands[0].owner
        readers = [use.owner for use in exponential.results[0].uses]
        if _body(difference) != "arith.subf" or sorted(map(_body, readers)) != _READERS:
            continue
        pairs = [(difference, exponential), *((exponential, reader) for reader in readers)]
        if all(_is_elementwise(made) and _reads_in_order(reader, made) for made, reader in pairs):
            fused = _with_inlined(exponential, difference)
            for reader in readers:
                _with_inlined(reader, fused)
            fused.erase()
            if not is_used(difference.results[0]):
                difference.erase()


def _body(op: ir.Operation) -> str:
    """Return the name of the operation in the loops of ``op``; the empty string if there are several."""
    if op.name != "linalg.generic":
        return ""
    inside = list(op.regions[0].blocks[0])
    return inside[0].operation.name if len(inside) == 2 else ""


def _is_identity(read: ir.AffineMap) -> bool:
    return read == ir.AffineMap.get_identity(read.n_dims, read.context)


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether ``op`` computes each element of its only result from elements of inputs, in the order of the result."""
    parallel = all("parallel" in str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"]))
    arguments = list(op.regions[0].blocks[0].arguments)
    return len(op.results) == 1 and parallel and _is_identity(indexing_maps(op)[-1]) and not is_used(arguments[-1])


def _reads_in_order(reader: ir.Operation, made: ir.Operation) -> bool:
    """Whether the loops of ``reader`` are those over the elements of the result of ``made``."""
    reads = zip(reader.operands, indexing_maps(reader), strict=True)
    return all(_is_identity(map_) for operand, map_ in reads if operand == made.results[0])


def _with_inlined(reader: ir.Operation, made: ir.Operation) -> ir.Operation:
    """Replace ``reader`` by an operation that computes the elements of ``made`` itself, and return this."""
    result, maps = made.results[0], indexing_maps(reader)
    kept = [at for at, operand in enumerate(reader.operands) if operand != result]
    operands, own = [reader.operands[at] for at in kept], list(made.operands)[:-1]

    def body(inside: LinalgOps, elements: Sequence[ir.Value]) -> Sequence[ir.Value]:
        before, rest = elements[: len(own)], dict(zip(kept, elements[len(own) :], strict=True))
        out = rest[kept[-1]]  # which nothing in ``made`` reads
        (element,) = inside.inline_block(made.regions[0].blocks[0], [*before, out])
        arguments = [rest.get(at, element) for at in range(len(maps))]
        return inside.inline_block(reader.regions[0].blocks[0], arguments)

    emit = LinalgOps.before(reader)
    attributes = attributes_of(reader) | {
        "indexing_maps": emit.affine_maps([*indexing_maps(made)[:-1], *(maps[at] for at in kept)]),
        "operandSegmentSizes": emit.segments(len(own) + len(kept) - 1, 1),
    }
    (value,) = emit.structured("generic", [*own, *operands[:-1]], operands[-1:], body, attributes)
    replace(reader, value)
    return value.owner
