"""Sums of integers that are rescaled to few bits, as of quantized convolutions, a row at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer, replace
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.llvm.fusion_limits import keep, reshaped

_ROW, _LONGEST = 16, 64
"""The sums that are in memory at once, at least, where there are as many; and at most, of a tensor of one row."""
_LABELS = ("fx_importer.rescaled", "fx_importer.sum", "fx_importer.initial")
"""Attributes by which the script finds operations."""


@dataclass(frozen=True)
class _Chain:
    """Initial values, the sums on them, and what is made of the sums."""

    initial: ir.Operation
    sum: ir.Operation
    rescaled: ir.Operation
    shape: Sequence[int]

    @property
    def tiles(self) -> list[int]:
        """The tile sizes: 1 for leading axes; 0, all of it, for the trailing axes of a row. A single row has parts."""
        row, axis = 1, len(self.shape)
        while axis > 0 and row < _ROW:
            axis -= 1
            row *= self.shape[axis]
        tiles = [1] * axis + [0] * (len(self.shape) - axis)
        if math.prod(self.shape) == row and axis < len(self.shape):
            inner = row // max(self.shape[axis], 1)
            parts = range(1, max(_LONGEST // max(inner, 1), 1) + 1)
            part = max((part for part in parts if self.shape[axis] % part == 0), default=0)
            tiles[axis] = part if _ROW <= part * inner < row else 0
        return tiles

    @property
    def loops(self) -> int:
        """The number of loops around a row."""
        return sum(map(bool, self.tiles))


@rewrite("fx-importer-tile-integer-sums")
def tile_integer_sums(module: ir.Operation) -> None:
    """Compute sums of 32 bits and more a row at a time, and rescale them at once: memory has one row of them.

    Of a convolution of int8, the sums take four times the memory of its result.
    """
    chains = [chain for op in operations(module, ("linalg.generic",)) if (chain := _chain_of(op)) is not None]
    chains = [
        chain for chain in chains if any(size > tile > 0 for size, tile in zip(chain.shape, chain.tiles, strict=True))
    ]
    if not chains:
        return
    from torch_mlir.dialects.transform import interpreter

    for chain in chains:
        _allocate(chain.rescaled)
    with module.context:
        for number, chain in enumerate(chains):
            for label, op in zip(_LABELS, (chain.rescaled, chain.sum, chain.initial), strict=True):
                op.attributes[label] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
        script = ir.Module.parse(_script(chains))
        interpreter.apply_named_sequence(module, script.body.operations[0], script)
    for op in operations(module, ("linalg.generic",)):
        for label in _LABELS:
            if label in op.attributes:
                del op.attributes[label]
    _shrink_empty_tensors(module)


@rewrite("fx-importer-keep-narrow-results")
def keep_narrow_results(module: ir.Operation) -> None:
    """Keep results of few bits that a reduction sums in more bits, as the mean over an image does, from fusion with it.

    Else the sums of a convolution before them would be in memory as a whole, in 32 bits. Runs before fusion.
    """
    for op in operations(module, ("linalg.reduce",)):
        value = reshaped(op.operands[0])
        while producer(value) == "linalg.generic" and _is_parallel(value.owner):
            if _is_narrow(ir.RankedTensorType(value.type)):
                keep(value)
                break
            value = reshaped(value.owner.operands[0])


def _is_narrow(kind: ir.RankedTensorType) -> bool:
    return str(kind.element_type) in ("i8", "i16")


def _chain_of(op: ir.Operation) -> _Chain | None:
    """Return the chain whose sums ``op`` makes, if nothing else reads them."""
    kind = _kind_of(op)
    if kind is None or not kind.has_static_shape or str(kind.element_type) not in ("i32", "i48", "i64"):
        return None
    if "reduction" not in str(op.attributes["iterator_types"]):
        return None
    start = list(op.operands)[-1]
    if producer(start) != "linalg.generic" or len(list(start.uses)) != 1 or not _is_parallel(start.owner.operation):
        return None
    uses = list(op.results[0].uses)
    user = uses[0].owner.operation if len(uses) == 1 else None
    if user is None or user.name != "linalg.generic" or user.block != op.block or not _is_parallel(user):
        return None
    result = _kind_of(user)
    if result is None or not _is_narrow(result):
        return None
    maps = [ir.AffineMapAttr(attribute).value for attribute in ir.ArrayAttr(user.attributes["indexing_maps"])]
    identity = ir.AffineMap.get_identity(kind.rank, op.context)
    fits = maps[uses[0].operand_number] == identity and maps[-1] == identity
    if not fits or producer(list(user.operands)[-1]) != "tensor.empty":
        return None
    return _Chain(start.owner.operation, op, user, list(kind.shape))


def _kind_of(op: ir.Operation) -> ir.RankedTensorType | None:
    """Return the type of the only result, a tensor; None for other operations."""
    is_tensor = len(op.results) == 1 and isinstance(op.results[0].type, ir.RankedTensorType)
    return ir.RankedTensorType(op.results[0].type) if is_tensor else None


def _is_parallel(op: ir.Operation) -> bool:
    return "reduction" not in str(op.attributes["iterator_types"]) and len(op.results) == 1


def _allocate(op: ir.Operation) -> None:
    """Give the result of ``op`` memory of its own.

    A slice of a padded tensor would do as well, but bufferization copies it for a loop that writes to it.
    """
    kind, none = op.results[0].type, ir.DenseI32ArrayAttr.get([0, 0, 0], op.context)
    with op.location, ir.InsertionPoint(op):
        memory = ir.Operation.create("bufferization.alloc_tensor", [kind], attributes={"operandSegmentSizes": none})
    op.operands[len(op.operands) - 1] = memory.results[0]


def _script(chains: Sequence[_Chain]) -> str:
    """Return the schedule: loops over rows of the result, with the sums and their initial values inside."""
    op = "!transform.any_op"
    lines: list[str] = []
    for n, chain in enumerate(chains):
        names = {label: f"%v{n}_{position}" for position, label in enumerate(_LABELS)}
        for label, name in names.items():
            lines.append(
                f"{name} = transform.structured.match attributes {{{label} = {n} : i64}} in %root : ({op}) -> {op}"
            )
        count = chain.loops
        rescaled, total, initial = names.values()
        lines.append(
            f"%t{n}, %l{n}:{count} = transform.structured.tile_using_for {rescaled} tile_sizes {chain.tiles} : "
            f"({op}) -> ({', '.join([op] * (count + 1))})"
        )
        around = f"%l{n}#{count - 1}" if count > 1 else f"%l{n}#0"
        for step, name in enumerate((total, initial)):
            lines.append(
                f"%f{n}_{step}, %c{n}_{step} = transform.structured.fuse_into_containing_op {name} into {around} : "
                f"({op}, {op}) -> ({op}, {op})"
            )
            around = f"%c{n}_{step}"
    body = "\n".join(lines)
    return f"""module attributes {{transform.with_named_sequence}} {{
  transform.named_sequence @__transform_main(%root: {op} {{transform.consumed}}) {{
{body}
    transform.yield
  }}
}}"""


def _shrink_empty_tensors(module: ir.Operation) -> None:
    """Replace slices of tensors without elements by smaller ones."""
    for op in operations(module, ("tensor.extract_slice",)):
        if producer(op.operands[0]) == "tensor.empty":
            with op.location, ir.InsertionPoint(op):
                empty = ir.Operation.create("tensor.empty", results=[op.results[0].type])
            replace(op, empty.results[0])
