"""Lower collectives over a device mesh, whose device groups the importer has attached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fx_importer.distributed.module_attributes import CHANNEL, REPLICA_GROUPS
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.rewrites.stablehlo.tensor_emitter import TensorEmitter

_REDUCTIONS = {
    "sum": "add",
    "avg": "add",
    "max": "maximum",
    "min": "minimum",
    "product": "multiply",
    "band": "and",
    "bor": "or",
    "bxor": "xor",
}
_FLOATS = ("f16", "bf16", "f32", "f64")
_INTEGERS = tuple(sign + width for sign in ("i", "ui") for width in ("8", "16", "32", "64"))


class _Refused(Exception):
    """A call without a StableHLO equivalent; the message is a sentence."""


def _operator(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
    """Lower a ``torch.operator`` that is a collective with device groups."""
    name = ir.StringAttr(op.attributes["name"]).value.removeprefix("torch.")
    if name == "_c10d_functional.wait_tensor":
        return [emit.torch.to_builtin(op.operands[0])]
    if name not in _LOWERINGS or REPLICA_GROUPS not in op.attributes:
        return None
    try:
        return [_LOWERINGS[name](op, emit)]
    except _Refused as reason:
        op.location.emit_error(f"'{name}': {reason}")
        return None


# --- reductions -----------------------------------------------------------------------------------------------------


def _all_reduce(op: ir.Operation, emit: TensorEmitter) -> ir.Value:
    x = emit.torch.to_builtin(op.operands[0])
    return _reduced(op, emit, "all_reduce", x, x.type, {})


def _reduce_scatter(op: ir.Operation, emit: TensorEmitter) -> ir.Value:
    result = _static(op, emit)
    x = emit.torch.to_builtin(op.operands[0])
    return _reduced(op, emit, "reduce_scatter", x, result, {"scatter_dimension": emit.i64(0)})


def _reduced(
    op: ir.Operation,
    emit: TensorEmitter,
    name: str,
    x: ir.Value,
    result: ir.Type,
    attributes: Mapping[str, ir.Attribute],
) -> ir.Value:
    reduction, element = _text(op.operands[1]), emit.element(x)
    allowed = _FLOATS if reduction == "avg" else _INTEGERS if reduction[0] == "b" else _FLOATS + _INTEGERS
    if reduction not in _REDUCTIONS:
        raise _Refused(f"the reduction '{reduction}' has no form in StableHLO, which has {', '.join(_REDUCTIONS)}")
    if element not in allowed:
        raise _Refused(f"'{reduction}' of {element} is not defined: it is of {', '.join(allowed)}")
    made = emit.op(
        f"stablehlo.{name}",
        [result],
        [x],
        {**attributes, **_groups(op, emit), "use_global_device_ids": ir.UnitAttr.get(emit.context)},
        regions=1,
    )
    scalar = emit.tensor((), element)
    emit.fill_region(
        made.regions[0],
        [scalar, scalar],
        lambda inside, a, b: [inside.stablehlo(_REDUCTIONS[reduction], scalar, a, b)],
    )
    if reduction != "avg":
        return made.result
    count = emit.filled(emit.dense_constant(f"{_group_size(op)}.0", scalar), emit.arith.sizes(made.result))
    return emit.stablehlo("divide", result, made.result, count)


# --- data movement --------------------------------------------------------------------------------------------------


def _all_gather(op: ir.Operation, emit: TensorEmitter) -> ir.Value:
    result = _static(op, emit)
    attributes = {"all_gather_dim": emit.i64(0), "use_global_device_ids": ir.UnitAttr.get(emit.context)}
    return emit.op(
        "stablehlo.all_gather", [result], [emit.torch.to_builtin(op.operands[0])], {**attributes, **_groups(op, emit)}
    ).result


def _all_to_all_single(op: ir.Operation, emit: TensorEmitter) -> ir.Value:
    """Exchange equal parts of the first axis."""
    sizes = [emit.integers(operand) for operand in op.operands[1:3]]
    if None in sizes or len({size for row in sizes for size in row or ()}) > 1:
        raise _Refused(
            "its parts have different sizes, which are those of the rank that was exported: only equal parts are the "
            "same program on all devices. For a permutation, call fx_importer.distributed.collective_permute"
        )
    return _exchanged(op, emit, split=0, concatenate=0)


def _shard_dim_alltoall(op: ir.Operation, emit: TensorEmitter) -> ir.Value:
    gather, shard = (emit.axis(op.operands[0], operand) for operand in op.operands[1:3])
    if gather is None or shard is None:
        raise _Refused("its axes are not known")
    return _exchanged(op, emit, split=shard, concatenate=gather)


def _exchanged(op: ir.Operation, emit: TensorEmitter, *, split: int, concatenate: int) -> ir.Value:
    result = _static(op, emit)
    attributes = {
        "split_dimension": emit.i64(split),
        "concat_dimension": emit.i64(concatenate),
        "split_count": emit.i64(_group_size(op)),
    }
    x = emit.torch.to_builtin(op.operands[0])
    return emit.op("stablehlo.all_to_all", [result], [x], {**attributes, **_groups(op, emit)}).result


def _broadcast(op: ir.Operation, emit: TensorEmitter) -> ir.Value:
    """Broadcast from the first device of each group, to which the source is moved."""
    source = constant_of(op.operands[1])
    if source is None or not 0 <= source < _group_size(op):
        raise _Refused(f"its source is not a rank of its group of {_group_size(op)}")
    groups = [[group[int(source)], *group[: int(source)], *group[int(source) + 1 :]] for group in _devices(op)]
    x = emit.torch.to_builtin(op.operands[0])
    attributes = {**_groups(op, emit), "replica_groups": emit.attribute(f"dense<{groups}> : {_groups_type(op)}")}
    return emit.op("stablehlo.collective_broadcast", [x.type], [x], attributes).result


def _permute(op: ir.Operation, emit: TensorEmitter) -> ir.Value:
    """Send from each device of a group to another; a device that receives nothing gets zeros."""
    targets = emit.integers(op.operands[1])
    groups = _devices(op)
    if targets is None or len(targets) != len(groups[0]):
        raise _Refused("its targets are not known, or are not one for each device of its groups")
    pairs = [[group[at], group[to]] for group in groups for at, to in enumerate(targets) if to != -1]
    x = emit.torch.to_builtin(op.operands[0])
    if not pairs:
        return emit.zeros(_static(op, emit))
    attributes = {
        "source_target_pairs": emit.attribute(f"dense<{pairs}> : tensor<{len(pairs)}x2xi64>"),
        "channel_handle": _groups(op, emit)["channel_handle"],
    }
    return emit.op("stablehlo.collective_permute", [x.type], [x], attributes).result


def _group_rank(op: ir.Operation, emit: TensorEmitter) -> ir.Value:
    """Look up the rank of each device in its group, by device number."""
    ranks = {device: rank for group in _devices(op) for rank, device in enumerate(group)}
    table = emit.dense_constant(str([ranks[device] for device in range(len(ranks))]), emit.tensor((len(ranks),), "i64"))
    device = emit.stablehlo("partition_id", emit.tensor((), "ui32"))
    sizes = {"slice_sizes": emit.array([1])}
    row = emit.op("stablehlo.dynamic_slice", [emit.tensor((1,), "i64")], [table, device], sizes).result
    return emit.stablehlo("reshape", emit.tensor((), "i64"), row)


# --- operands and attributes ----------------------------------------------------------------------------------------


def _static(op: ir.Operation, emit: TensorEmitter) -> ir.Type:
    """Return the builtin result type. Raises `_Refused` for a dynamic size or a rank-0 operand."""
    types = [emit.torch.builtin_type(value.type) for value in (op.operands[0], op.results[0])]
    if any(None in emit.shape(type_) for type_ in types):
        raise _Refused("it has a dynamic size, and parts and wholes of tensors need static ones")
    if not emit.shape(types[0]):
        raise _Refused("a tensor of rank 0 has no axis to take parts of, or to put parts behind each other")
    return types[1]


def _text(value: ir.Value) -> str:
    """Return the text of a ``torch.constant.str``."""
    if producer(value) != "torch.constant.str":
        raise _Refused("its reduction is not known")
    return ir.StringAttr(value.owner.attributes["value"]).value


def _devices(op: ir.Operation) -> list[list[int]]:
    sizes = list(ir.ShapedType(op.attributes[REPLICA_GROUPS].type).shape)
    flat = list(ir.DenseIntElementsAttr(op.attributes[REPLICA_GROUPS]))
    return [flat[at : at + sizes[1]] for at in range(0, len(flat), sizes[1])]


def _group_size(op: ir.Operation) -> int:
    return len(_devices(op)[0])


def _groups_type(op: ir.Operation) -> ir.Type:
    return op.attributes[REPLICA_GROUPS].type


def _groups(op: ir.Operation, emit: TensorEmitter) -> dict[str, ir.Attribute]:
    """Return the device group attributes of ``op``. Channel type 1 is device-to-device."""
    channel = ir.IntegerAttr(op.attributes[CHANNEL]).value
    return {
        "replica_groups": op.attributes[REPLICA_GROUPS],
        "channel_handle": emit.attribute(f"#stablehlo.channel_handle<handle = {channel}, type = 1>"),
    }


_LOWERINGS: dict[str, Callable[[ir.Operation, TensorEmitter], ir.Value]] = {
    "_c10d_functional.all_reduce": _all_reduce,
    "_c10d_functional.all_gather_into_tensor": _all_gather,
    "_c10d_functional.reduce_scatter_tensor": _reduce_scatter,
    "_c10d_functional.all_to_all_single": _all_to_all_single,
    "_c10d_functional.broadcast": _broadcast,
    "_dtensor.shard_dim_alltoall": _shard_dim_alltoall,
    "fx_importer.collective_permute": _permute,
    "fx_importer.group_rank": _group_rank,
}
LOWERINGS = {"torch.operator": _operator}
