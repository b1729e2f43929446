"""Weights prepared once: operations on weights alone become a function that runs at load."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.constant_arguments import append_argument
from fx_importer.mlir.emit.emitter import Emitter, update_function_type
from fx_importer.mlir.walk import operations

_IMPURE = frozenset(f"stablehlo.{name}" for name in ("custom_call", "infeed", "recv", "rng", "rng_bit_generator"))


def split_preparation(
    function: func_d.FuncOp, first: int, dtypes: Mapping[str, tuple[torch.dtype, ...]]
) -> ir.Module | None:
    """Move the operations of ``function``, in StableHLO, on weights alone to the function ``main`` of a new module.

    The weights are the arguments from ``first`` on. ``main`` takes them, and returns the new last arguments of
    ``function``. A result that is larger than the operands of its operation, or than the weights that it is computed
    from, stays in ``function``. None if there is nothing to move. ``dtypes`` maps element types to torch dtypes.
    """
    weights = list(function.entry_block.arguments)[first:]
    roots: dict[ir.Value, frozenset[ir.Value]] = {weight: frozenset((weight,)) for weight in weights}
    known = _known(function.entry_block, roots)
    moved = _moved(known, roots, dtypes)
    if not moved:
        return None
    erased = [op for op in known if op in moved]  # now, since the hash of an operation includes its operands
    results = [result for op in erased for result in op.results]
    read = [value for value in (*weights, *results) if any(use.owner.operation not in moved for use in value.uses)]
    module = _preparation(function, weights, known, read)
    with function.context, function.location:
        for value in read:
            value.replace_all_uses_with(append_argument(function, value.type))
    for op in reversed(erased):
        op.erase()
    _erase_arguments(function, first, len(weights))
    return module


def _known(block: ir.Block, roots: dict[ir.Value, frozenset[ir.Value]]) -> list[ir.Operation]:
    """Return the operations that follow from weights and constants; add the weights of their results to ``roots``."""
    known: list[ir.Operation] = []
    for op in (op.operation for op in block):
        pure = op.name.startswith("stablehlo.") and op.name not in _IMPURE
        if pure and all(operand in roots for operand in op.operands) and _is_closed(op):
            known.append(op)
            read = frozenset[ir.Value]().union(*(roots[operand] for operand in op.operands))
            roots.update(dict.fromkeys(op.results, read))
    return known


def _moved(
    known: list[ir.Operation],
    roots: Mapping[ir.Value, frozenset[ir.Value]],
    dtypes: Mapping[str, tuple[torch.dtype, ...]],
) -> set[ir.Operation]:
    """Return the operations to move: those whose results are small enough, or are not read by operations that stay."""

    def size(values: Iterable[ir.Value]) -> float:
        return sum(_size(value, dtypes) for value in values)

    moved = {op for op in known if op.results and roots[op.results[0]]}
    for op in reversed(known):
        read = [result for result in op.results if any(use.owner.operation not in moved for use in result.uses)]
        if read and size(read) > min(size(op.operands), size(roots[read[0]])):
            moved.discard(op)
    return moved


def _is_closed(op: ir.Operation) -> bool:
    """Whether the regions of ``op`` read nothing that is defined outside of them, and have no effects."""
    if not len(op.regions):
        return True
    inside = [operation for operation in operations(op) if operation != op]
    defined: set[ir.Value] = {value for inner_op in inside for value in inner_op.results}
    defined.update(
        value for inner_op in (op, *inside) for region in inner_op.regions for b in region for value in b.arguments
    )
    return all(inner_op.name not in _IMPURE and defined.issuperset(inner_op.operands) for inner_op in inside)


def _size(value: ir.Value, dtypes: Mapping[str, tuple[torch.dtype, ...]]) -> float:
    """Return the bytes of a tensor; infinity for one of unknown size."""
    kind = ir.RankedTensorType(value.type) if isinstance(value.type, ir.RankedTensorType) else None
    if kind is None or not kind.has_static_shape or str(kind.element_type) not in dtypes:
        return math.inf
    return math.prod(kind.shape) * dtypes[str(kind.element_type)][0].itemsize


def _preparation(
    function: func_d.FuncOp, weights: list[ir.Value], known: list[ir.Operation], read: Sequence[ir.Value]
) -> ir.Module:
    """Return a module with a function that computes the values ``read`` of ``function`` from ``weights``."""
    needed, copied = set(read), list[ir.Operation]()
    for op in reversed(known):
        if any(result in needed for result in op.results):
            needed.update(op.operands)
            copied.append(op)
    with function.context, function.location:
        module = ir.Module.create()
        made = func_d.FuncOp("main", ([weight.type for weight in weights], []), ip=ir.InsertionPoint(module.body))
        block = made.add_entry_block()
    emit = Emitter(ir.InsertionPoint(block), function.location)
    values = dict(zip(weights, block.arguments, strict=True))
    for op in reversed(copied):
        copy = op.clone(emit.point)
        for position, operand in enumerate(op.operands):
            copy.operands[position] = values[operand]
        values.update(zip(op.results, copy.results, strict=True))
    emit.op("func.return", [], [values[value] for value in read])
    update_function_type(made)
    return module


def _erase_arguments(function: func_d.FuncOp, first: int, count: int) -> None:
    """Erase ``count`` unused arguments of ``function`` from ``first`` on."""
    for _ in range(count):
        function.entry_block.erase_argument(first)
    update_function_type(function)
    if "arg_attrs" in function.attributes:
        dicts = list(ir.ArrayAttr(function.attributes["arg_attrs"]))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(dicts[:first] + dicts[first + count :], function.context)
