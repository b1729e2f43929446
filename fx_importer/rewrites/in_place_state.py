"""State that is overwritten in place: tensor values between torch and linalg, memrefs at the end.

The passes to linalg support value semantics only. So a function that overwrites ``!torch.tensor`` arguments first
becomes one that returns their new values, and once it is on builtin tensors, one that writes them to memrefs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import Emitter, is_used, terminator, update_function_type
from fx_importer.mlir.functions import is_assumption
from fx_importer.mlir.types import TorchTensor
from fx_importer.mlir.walk import operations, rewrite

_OVERWRITES = "fx_importer.overwrites"
"""Attribute of a result that is the new value of an argument: the position of the argument."""

_STATE = "fx_importer.state"
"""Attribute of an argument that is state, and of the result that is its new value: the name."""

_OWN_MEMORY = ("linalg.", "tensor.empty", "tensor.insert_slice", "tensor.pad", "arith.constant")
"""Operations whose result has memory of its own. The result of any other may be a view of an argument."""


@rewrite("fx-importer-state-to-values")
def state_to_values(module: ir.Operation) -> None:
    """Make functions that overwrite ``!torch.tensor`` arguments return the new values, after their other results."""
    for function in _functions(module):
        mutable = [argument for argument in function.arguments if _is_mutable(argument.type)]
        if mutable:
            _return_new_values(function, mutable)


def _return_new_values(function: func_d.FuncOp, mutable: Sequence[ir.BlockArgument]) -> None:
    context = function.context
    added: list[ir.Value] = []
    attributes: list[ir.Attribute] = []
    i64 = ir.IntegerType.get_signless(64, context)
    for argument in mutable:
        for use in list(argument.uses):
            if use.owner.name == "torch.copy.to_vtensor":
                use.owner.result.replace_all_uses_with(argument)
                use.owner.erase()
    for argument in mutable:
        for use in list(argument.uses):
            if use.owner.name == "torch.overwrite.tensor.contents" and use.operand_number == 1:
                added.append(use.owner.operands[0])
                attributes.append(ir.DictAttr.get({_OVERWRITES: ir.IntegerAttr.get(i64, argument.arg_number)}, context))
                use.owner.erase()
        argument.set_type(replace(TorchTensor.of(argument), mutable=False).mlir(context))
    results = [*_results(function), *added]
    _set_results(function, results, [*_attributes(function, "res_attrs", len(results) - len(added)), *attributes])


def _is_mutable(type_: ir.Type) -> bool:
    tensor = TorchTensor.read(type_)
    return tensor is not None and tensor.mutable


@rewrite("fx-importer-values-to-memory")
def values_to_memory(module: ir.Operation) -> None:
    """Make functions write the values that `state_to_values` added to memory: their arguments become memrefs."""
    for function in _functions(module):
        attributes = _attributes(function, "res_attrs", len(function.type.results))
        targets = [_target(attribute) for attribute in attributes]
        if any(target is not None for target in targets):
            _write_in_place(function, targets, attributes)


@rewrite("fx-importer-sliced-state-to-memory")
def sliced_state_to_memory(module: ir.Operation) -> None:
    """Make functions that return state with slices written write them to memory: these arguments become memrefs."""
    for function in _functions(module):
        dicts = [ir.DictAttr(attribute) for attribute in _attributes(function, "arg_attrs", len(function.arguments))]
        attributes = _attributes(function, "res_attrs", len(function.type.results))
        arguments = {entry[_STATE]: at for at, entry in enumerate(dicts) if _STATE in entry}
        targets = [arguments.get(entry[_STATE]) if _STATE in entry else None for entry in map(ir.DictAttr, attributes)]
        unchecked = _before_checks(function)
        targets = [
            target if target is not None and _is_written_slice(value, function.arguments[target], unchecked) else None
            for value, target in zip(_results(function), targets, strict=True)
        ]
        if any(target is not None for target in targets):
            _write_in_place(function, targets, attributes)


@rewrite("fx-importer-copy-new-state")
def copy_new_state(module: ir.Operation) -> None:
    """Copy the new value of state before it is written, if the old one is read, or a check may fail before the end.

    ``eliminate-empty-tensors`` would let it be computed into the memory of the state, also where a fused operation
    reads the old value behind that. Slices are written after the checks (`_before_checks`).
    """
    checked = any(map(is_assumption, operations(module, ("cf.assert",))))
    for op in operations(module, ("bufferization.materialize_in_destination",)):
        value, target = list(op.operands)[:2]
        reads = [use.owner for use in target.uses if use.owner.name == "bufferization.to_tensor"]
        sliced = any("writable" in read.attributes for read in reads)
        read = any("writable" not in read.attributes and is_used(read.results[0]) for read in reads)
        if read or (checked and not sliced):
            op.operands[0] = _copy(value, Emitter.before(op))


def _is_written_slice(value: ir.Value, state: ir.Value, unchecked: Collection[ir.Value]) -> bool:
    return value.type == state.type and value != state and _is_sliced(value, state, unchecked)


def _before_checks(function: func_d.FuncOp) -> set[ir.Value]:
    """Return the values before the last check of an assumption: a call that violates it changes no state."""
    module = function.parent
    if module is None or not any(map(is_assumption, operations(module, ("cf.assert",)))):
        return set()
    ops = list(function.entry_block.operations)
    checks = [
        at
        for at, op in enumerate(ops)
        if any(
            inner.name == "func.call" or is_assumption(inner)  # the function that is called may have the check
            for inner in operations(op.operation, ("cf.assert", "func.call"))
        )
    ]
    return {result for op in ops[: max(checks, default=-1) + 1] for result in op.results}


def _target(attributes: ir.Attribute) -> int | None:
    attrs = ir.DictAttr(attributes)
    return ir.IntegerAttr(attrs[_OVERWRITES]).value if _OVERWRITES in attrs else None


def _write_in_place(function: func_d.FuncOp, targets: Sequence[int | None], attributes: Sequence[ir.Attribute]) -> None:
    context, block = function.context, function.entry_block
    restrict = {"restrict": ir.UnitAttr.get(context)}
    unchecked = _before_checks(function)
    sliced = {
        target
        for value, target in zip(_results(function), targets, strict=True)
        if target is not None and _is_written_slice(value, block.arguments[target], unchecked)
    }
    for position in {target for target in targets if target is not None}:
        argument = block.arguments[position]
        type_ = argument.type
        uses = list(argument.uses)
        argument.set_type(ir.Type.parse(str(type_).replace("tensor<", "memref<", 1), context))
        start = Emitter(ir.InsertionPoint.at_block_begin(block), function.location)
        # Slices are written where they are, before other memory is copied: bufferization sees what reads the old ones.
        access = restrict | {"writable": ir.UnitAttr.get(context)} if position in sliced else restrict
        loaded = start.op("bufferization.to_tensor", [type_], [argument], access).result
        for use in uses:
            use.owner.operands[use.operand_number] = loaded
    end = Emitter(ir.InsertionPoint(terminator(block)), function.location)
    # All old state is read before any of it is written.
    values = [
        value if target in sliced else _in_own_memory(value, end, bool(sliced))
        for value, target in zip(_results(function), targets, strict=True)
    ]
    for value, target in zip(values, targets, strict=True):
        if target is not None:
            writable = restrict | {"writable": ir.UnitAttr.get(context)}
            end.op("bufferization.materialize_in_destination", [], [value, block.arguments[target]], writable)
    kept = [(v, a) for v, target, a in zip(values, targets, attributes, strict=True) if target is None]
    _set_results(function, [value for value, _ in kept], [attribute for _, attribute in kept])


def _is_sliced(value: ir.Value, state: ir.Value, unchecked: Collection[ir.Value]) -> bool:
    """Whether ``value`` is ``state`` with slices written, one after the other or in loops; none is ``unchecked``."""
    while value != state:
        owner = value.owner
        if isinstance(owner, ir.Block) or value in unchecked:
            return False
        if owner.name == "tensor.insert_slice":
            value = owner.operands[1]
        elif owner.name == "scf.for":
            number = ir.OpResult(value).result_number
            body = owner.regions[0].blocks[0]
            if not _is_sliced(terminator(body).operands[number], body.arguments[1 + number], unchecked):
                return False
            value = owner.operands[3 + number]
        else:
            return False
    return True


def _in_own_memory(value: ir.Value, emit: Emitter, sliced: bool) -> ir.Value:
    """Return ``value``, or a copy of it where it may be a view of state that is written; ``sliced``, before the end."""
    owner = value.owner
    own = isinstance(owner, ir.Operation | ir.OpView) and _is_in_own_memory(value, owner)
    if sliced and own:
        own = owner.name.startswith(("linalg.", "tensor.empty", "arith.constant"))
    if own or not isinstance(value.type, ir.RankedTensorType):
        return value
    return _copy(value, emit)


def _copy(value: ir.Value, emit: Emitter) -> ir.Value:
    segments = {"operandSegmentSizes": emit.segments(0, 1, 0)}
    return emit.op("bufferization.alloc_tensor", [value.type], [value], segments).result


def _is_in_own_memory(value: ir.Value, owner: ir.Operation | ir.OpView) -> bool:
    if owner.name == "scf.for":  # one that writes to an iter_arg gets a copy of it, since state is read only
        yielded = terminator(owner.regions[0].blocks[0]).operands[ir.OpResult(value).result_number].owner
        return isinstance(yielded, ir.Operation | ir.OpView) and yielded.name.startswith("tensor.insert")
    return owner.name.startswith(_OWN_MEMORY)


def _functions(module: ir.Operation) -> Iterator[func_d.FuncOp]:
    for op in module.regions[0].blocks[0].operations:
        if isinstance(op, func_d.FuncOp) and not op.is_external:
            yield op


def _results(function: func_d.FuncOp) -> list[ir.Value]:
    return list(terminator(function.entry_block).operands)


def _attributes(function: func_d.FuncOp, name: str, count: int) -> list[ir.Attribute]:
    if name in function.attributes:
        return list(ir.ArrayAttr(function.attributes[name]))
    return [ir.DictAttr.get({}, function.context)] * count


def _set_results(function: func_d.FuncOp, values: Sequence[ir.Value], attributes: Sequence[ir.Attribute]) -> None:
    """Make ``function`` return ``values``, with ``attributes``, and update its type."""
    old = terminator(function.entry_block)
    Emitter.before(old).op("func.return", [], list(values))
    old.erase()
    update_function_type(function)
    if "res_attrs" in function.attributes:
        del function.attributes["res_attrs"]
    if attributes:
        function.attributes["res_attrs"] = ir.ArrayAttr.get(attributes, function.context)
