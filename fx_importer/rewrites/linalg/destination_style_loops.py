"""Make loops update tensors in place, as one-shot bufferization with default options requires.

One-shot bufferization rejects a loop that yields a different buffer than its iteration argument. A tensor that the body
does not update by insertions gets a leading axis of size 1: the body reads a slice of it, and finally inserts the new
value. The slice has a different type than the tensor, so canonicalization cannot fold the insertion. If the body reads
the old value after overwriting it, the bufferization analysis inserts a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import attributes_of, producer, replace, terminator
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-loops-to-destination-style", ops=("scf.for", "scf.while"))
def loops_to_destination_style(op: ir.Operation) -> None:
    """Make a loop write each tensor that it yields into its iteration argument.

    A tensor must have the same sizes in all iterations, as PyTorch requires of its loops. A tensor computed by the
    condition of an ``scf.while`` is left alone.
    """
    if op.name == "scf.while":
        op = _with_aligned_arguments(op)
    for position, value in enumerate(op.operands):
        if producer(value) == "tensor.empty":
            # Equal empty tensors are merged, and bufferization analysis would let two arguments write to the same one.
            op.operands[position] = LoopEmitter.before(op).fill_with_zeros(value)
    body = _blocks(op)[-1]
    for position, argument in enumerate(_carried(body)):
        if isinstance(argument.type, ir.RankedTensorType) and not _is_updated_in_place(body, position, argument):
            _add_leading_axis(op, position)


def _blocks(op: ir.Operation) -> list[ir.Block]:
    return [region.blocks[0] for region in op.regions]


def _carried(block: ir.Block) -> list[ir.Value]:
    """Return the iteration arguments of a loop block, without the counter of an ``scf.for``."""
    return list[ir.Value](block.arguments)[1 if block.owner.name == "scf.for" else 0 :]


# --- adding an axis ---------------------------------------------------------------------------------------------------


def _add_leading_axis(op: ir.Operation, position: int) -> None:
    """Add a leading axis of size 1 to the tensor at ``position``, and insert each new value into it."""
    emit, behind = LoopEmitter.before(op), LoopEmitter(ir.InsertionPoint.after(op), op.location)
    operand = position + (3 if op.name == "scf.for" else 0)  # after the bounds
    initial = _with_leading_axis(op.operands[operand], emit)
    op.operands[operand] = initial
    result = op.results[position]
    uses = list(result.uses)
    result.set_type(initial.type)
    _replace(uses, behind.collapse_leading_axis(result))
    *conditions, body = _blocks(op)
    for block in conditions:
        _read_slice(block, position, initial.type)
    old = _read_slice(body, position, initial.type)
    last = terminator(body)
    value = last.operands[position]
    _compute_into(old, value)
    last.operands[position] = LoopEmitter.before(last).insert_into_leading_axis(value, _carried(body)[position])


def _with_leading_axis(tensor: ir.Value, emit: LoopEmitter) -> ir.Value:
    """Emit ``tensor`` with a leading axis of size 1; one that is filled is filled in this shape."""
    type_ = ir.RankedTensorType(tensor.type)
    if producer(tensor) != "linalg.fill" or not type_.has_static_shape:
        return emit.expand_leading_axis(tensor)
    return emit.fill(tensor.owner.operands[0], emit.empty([1, *type_.shape], type_.element_type))


def _read_slice(block: ir.Block, position: int, type_: ir.Type) -> ir.Value:
    """Give an iteration argument a new type, and use a slice of it. ``scf.condition`` passes on the whole tensor."""
    argument = _carried(block)[position]
    uses = [use for use in argument.uses if use.owner.name != "scf.condition"]
    argument.set_type(type_)
    start = LoopEmitter(ir.InsertionPoint.at_block_begin(block), block.owner.location)
    old = start.extract_from_leading_axis(argument)
    _replace(uses, old)
    return old


def _replace(uses: Sequence[ir.OpOperand], value: ir.Value) -> None:
    for use in uses:
        use.owner.operands[use.operand_number] = value


def _compute_into(destination: ir.Value, value: ir.Value) -> None:
    """Make the structured operations that compute ``value`` write to ``destination`` instead of an empty tensor."""
    while producer(value).startswith("linalg.") and value.owner.operation.block == destination.owner.operation.block:
        op = value.owner
        position = len(op.operands) - len(op.results) + ir.OpResult(value).result_number
        value = op.operands[position]
        if producer(value) == "tensor.empty" and value.type == destination.type:
            op.operands[position] = destination
        if sum(1 for _ in value.uses) > 1:
            return


# --- updates in place -------------------------------------------------------------------------------------------------


def _is_updated_in_place(body: ir.Block, position: int, argument: ir.Value) -> bool:
    """Whether the body yields the argument, or a result of operations on it that write to their operand.

    Nothing may read the old value after an update.
    """
    steps: list[tuple[ir.Operation, int]] = []
    value = terminator(body).operands[position]
    while value != argument:
        if isinstance(value.owner, ir.Block) or value.owner.operation.block != body:
            return False
        if (at := _destination(value)) is None:
            return False
        steps.append((value.owner.operation, at))
        value = value.owner.operands[at]
    return all(_is_last_read(op.operands[at], op, at) for op, at in steps)


def _destination(value: ir.Value) -> int | None:
    """Return the position of the operand that the defining operation of ``value`` writes to; None if there is none."""
    op, number = value.owner, ir.OpResult(value).result_number
    offsets = {"tensor.cast": 0, "tensor.insert": 1, "tensor.insert_slice": 1, "scf.for": 3 + number}
    if op.name == "scf.while":
        return number if number < len(op.operands) else None
    return offsets.get(op.name)


def _is_last_read(value: ir.Value, op: ir.Operation, position: int | None = None) -> bool:
    """Whether each use of ``value``, and of its possible views, is before ``op`` or its operand ``position``."""
    for use in value.uses:
        owner = use.owner.operation
        while owner.block != op.block:
            owner = owner.parent.operation
        if owner == op:
            read_before = use.owner.operation == op and use.operand_number == position
        else:
            read_before = owner.is_before_in_block(op) and (
                _only_reads(use) or all(_is_last_read(result, op) for result in owner.results)
            )
        if not read_before:
            return False
    return True


def _only_reads(use: ir.OpOperand) -> bool:
    """Whether no result of the operation can be a view of its operand."""
    name = use.owner.name
    if name.startswith("linalg."):
        return use.operand_number < len(use.owner.operands) - len(use.owner.results)
    return name in ("tensor.extract", "tensor.dim") or (name == "tensor.insert_slice" and use.operand_number == 0)


# --- arguments of while loops -----------------------------------------------------------------------------------------


def _with_aligned_arguments(op: ir.Operation) -> ir.Operation:
    """Return an ``scf.while`` whose condition passes each argument at its own position: ``op`` or its replacement.

    Tensors come first: canonicalization drops scalars that the body does not read, and shifts later arguments.
    """
    before, after = _blocks(op)
    arguments, passed = list[ir.Value](before.arguments), list(terminator(before).operands)[1:]
    tensors = [argument for argument in arguments if isinstance(argument.type, ir.RankedTensorType)]
    if arguments[: len(tensors)] == passed[: len(tensors)] == tensors:
        return op
    order = sorted(range(len(arguments)), key=lambda position: arguments[position] not in tensors)
    computed = [position for position, value in enumerate(passed) if value not in arguments]
    types = [*(arguments[position].type for position in order), *(passed[position].type for position in computed)]
    places = [
        order.index(arguments.index(value)) if value in arguments else len(order) + computed.index(position)
        for position, value in enumerate(passed)
    ]
    initial = [op.operands[position] for position in order]
    new = LoopEmitter.before(op).op("scf.while", types, initial, attributes_of(op), regions=2)
    _move(before, new.regions[0], types[: len(order)], [order.index(position) for position in range(len(order))])
    _move(after, new.regions[1], types, places)
    condition, *values = terminator(before).operands
    _end(before, [condition, *list(before.arguments), *(values[position] for position in computed)])
    yielded = list(terminator(after).operands)
    _end(after, [yielded[position] for position in order])
    replace(op, *(new.results[position] for position in places))
    return new


def _move(block: ir.Block, region: ir.Region, types: Sequence[ir.Type], places: Sequence[int]) -> None:
    """Move ``block`` to ``region``, with arguments of ``types``; ``places`` has the new positions of the old ones."""
    old = list(block.arguments)
    new = [block.add_argument(type_, block.owner.location) for type_ in types]
    for argument, position in zip(old, places, strict=True):
        argument.replace_all_uses_with(new[position])
    for _ in old:
        block.erase_argument(0)
    block.append_to(region)


def _end(block: ir.Block, values: Sequence[ir.Value]) -> None:
    """Replace the operands of the terminator of ``block``."""
    old = terminator(block)
    LoopEmitter.before(old).op(old.name, [], values)
    old.erase()
