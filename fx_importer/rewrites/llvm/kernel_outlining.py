"""Outlining of loops to functions, which LLVM compiles faster."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import Emitter, attributes_of, producer
from fx_importer.mlir.emit.llvm import function_hints
from fx_importer.mlir.functions import body_of
from fx_importer.mlir.walk import operations, rewrite, rewrite_with_options
from fx_importer.rewrites.llvm.arena import memory_of
from fx_importer.rewrites.llvm.entry_point import entry_point
from fx_importer.rewrites.llvm.parallel_loops import (
    DYNAMIC_PREFIX,
    PREFIX,
    SMALLEST_TRIP_COUNT,
    TILES,
    Shared,
    constant_bound,
    loop_to_split,
)
from fx_importer.rewrites.llvm.vector_math import FUNCTIONS

_CLONED = ("arith.constant", "memref.get_global")
"""Operations that are cloned into a kernel instead of being passed as arguments."""
_LOOPS = ("scf.for", "scf.parallel")
SMALL_TRIP_COUNT = 1 << 16
"""The trip count of a loop of microseconds, which takes LLVM tens of milliseconds to unroll and vectorize."""
_LONGER = 8
"""By how much longer an iteration takes that rescales integers, with products of 64 bits, or computes a function."""

OFTEN = 16
"""The number of calls from which on the speed of a small kernel counts."""


@rewrite_with_options("fx-importer-outline-kernels")
def outline_kernels(module: ir.Operation, small_trip_count: int = SMALL_TRIP_COUNT) -> None:
    """Outline every outermost loop without results to a function; equal loops call the same function.

    LLVM takes minutes for a model in one function. Functions of at most ``small_trip_count`` iterations are optimized
    for size, which takes a tenth of the time, unless they are called `OFTEN`, as the steps of an LSTM are.
    """
    loops: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in _LOOPS and not op.results:
            loops.append(op)
            return ir.WalkResult.SKIP
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    named: dict[str, func_d.FuncOp] = {}  # by text without the name
    calls: Counter[str] = Counter()
    counts: dict[str, float] = {}
    for number, loop in enumerate(loops):
        with module.context, loop.location:
            count = _trip_count(loop)
            split = loop_to_split(loop) if count >= SMALLEST_TRIP_COUNT or TILES in loop.attributes else None
            prefix = "" if split is None else DYNAMIC_PREFIX if count == math.inf else PREFIX
            kernel, call = _outline(loop, f"{prefix}kernel_{number}", module, split)
            name = kernel.name.value
            text = kernel.operation.get_asm(use_local_scope=True).replace(f"@{name}(", "(", 1)
            if (known := named.setdefault(text, kernel)) is not kernel:
                name = known.name.value
                call.attributes["callee"] = ir.FlatSymbolRefAttr.get(name)
                kernel.erase()
            calls[name], counts[name] = calls[name] + 1, count
    for kernel in named.values():
        work = counts[kernel.name.value] * (_LONGER if _takes_longer(kernel) else 1)
        small = work <= small_trip_count and calls[kernel.name.value] < OFTEN
        has_vectors = operations(kernel.operation, ("vector.broadcast",))
        hint = "optsize" if small and not has_vectors else ("prefer-vector-width", "512")
        # With the prefix of the dialect: attributes without one are lost in the conversion.
        kernel.attributes["llvm.passthrough"] = function_hints(module.context, "noinline", hint)


def _takes_longer(kernel: func_d.FuncOp) -> bool:
    products = operations(kernel.operation, ("arith.muli",))
    rescales = any(str(product.results[0].type) == "i64" for product in products)
    return rescales or bool(operations(kernel.operation, FUNCTIONS))


@rewrite("fx-importer-reassociate-sums")
def reassociate_sums(module: ir.Operation) -> None:
    """Let LLVM split each sum of floats in memory into vectors: an ordered one adds a number at a time.

    Products that are added to it are rounded once, with their sum.
    """
    for op in operations(module.operation, ("memref.store",)):
        if load_of_sum(op) is not None:
            contract(op, "reassoc,contract")


def load_of_sum(store: ir.Operation) -> ir.Operation | None:
    """Return the load of the float that ``store`` writes to the same place, with something added to it; else None."""
    total, *indices = store.operands
    if producer(total) != "arith.addf" or len(list(total.uses)) != 1:
        return None
    loads = [
        operand.owner
        for operand in total.owner.operands
        if producer(operand) == "memref.load" and list(operand.owner.operands) == indices
    ]
    return loads[0] if loads else None


def contract(store: ir.Operation, flags: str = "contract") -> None:
    """Let LLVM fuse the products and sums of the sum that ``store`` writes; give the last addition these ``flags``."""
    addition = store.operands[0].owner
    addition.attributes["fastmath"] = ir.Attribute.parse(f"#arith.fastmath<{flags}>", store.context)
    for value in addition.operands:
        _contract(value)


def _contract(value: ir.Value) -> None:
    """Let LLVM fuse the products and sums that ``value`` is made of."""
    if producer(value) in ("arith.mulf", "arith.addf") and "contract" not in str(
        attributes_of(value.owner).get("fastmath")
    ):
        value.owner.attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<contract>", value.context)
        for operand in value.owner.operands:
            _contract(operand)


@rewrite("fx-importer-skip-optimization")
def skip_optimization(module: ir.Operation) -> None:
    """Have LLVM not optimize the entry point if it has no loop: what only calls kernels takes most of the time."""
    function = entry_point(module)
    if not any(op.name.startswith("scf.") for op in operations(function.operation)):
        function.attributes["llvm.passthrough"] = function_hints(function.context, "optnone", "noinline")


def _outline(
    loop: ir.Operation, name: str, module: ir.Operation, split: Shared | None
) -> tuple[func_d.FuncOp, func_d.CallOp]:
    """Outline ``loop``; the last arguments of the kernel are the bounds of the loop that threads share, if any."""
    bounds = [(split.loop, bound) for bound in split.bounds] if split else []
    inside = operations(loop)
    defined = {value for op in inside for value in _values_of(op)}
    captured = dict.fromkeys(value for op in inside for value in op.operands if value not in defined)
    cloned = [value for value in captured if producer(value) in _CLONED]
    taken_as = {value: Slice.of(value) or value for value in captured if value not in cloned}
    slices = [argument for argument in taken_as.values() if isinstance(argument, Slice)]
    begins = {slice_.memory: slice_.offset for slice_ in reversed(slices)}
    """Of the first slice of each buffer: the others are at constant distances from it."""
    memories = list(dict.fromkeys(value.memory if isinstance(value, Slice) else value for value in taken_as.values()))
    passed = [
        *memories,
        *map(ArithOps.before(loop).index, begins.values()),
        *(owner.operands[number] for owner, number in bounds),
    ]

    with ir.InsertionPoint(body_of(module)):
        kernel = func_d.FuncOp(name, ([_argument_type(value.type) for value in passed], []), visibility="private")
    if all(_is_bare_pointer(value.type) for value in passed):
        kernel.attributes["llvm.bareptr"] = ir.UnitAttr.get()
    entry = kernel.add_entry_block()
    parameters = list(entry.arguments)
    replacements: dict[ir.Value, ir.Value] = {}
    emit = ArithOps(ir.InsertionPoint(entry), loop.location)
    argument_of = dict(zip(memories, parameters, strict=False))
    begin_of = dict(zip(begins, parameters[len(memories) :], strict=False))
    with ir.InsertionPoint(entry):
        for value, slice_ in taken_as.items():
            if isinstance(slice_, Slice):
                offset = emit.index_op("addi", begin_of[slice_.memory], slice_.offset - begins[slice_.memory])
                replacements[value] = slice_.emit(emit, argument_of[slice_.memory], offset)
            else:
                replacements[value] = _bitcast(argument_of[value], value.type)
        for value in cloned:
            replacements[value] = value.owner.clone().results[0]
        end = func_d.ReturnOp([])
    with ir.InsertionPoint(loop):
        call = func_d.CallOp([], name, [_bitcast(value, _argument_type(value.type)) for value in passed])
    loop.move_before(end)
    for op in inside:
        for position, value in enumerate(op.operands):
            if value in replacements:
                op.operands[position] = replacements[value]
    _say_what_is_distinct(kernel, passed)
    for (owner, bound), argument in zip(bounds, parameters[len(parameters) - len(bounds) :], strict=True):
        owner.operands[bound] = argument
    return kernel, call


@dataclass(frozen=True)
class Slice:
    """A part of a buffer at a constant place, which a kernel takes as an argument: equal loops read many slices."""

    memory: ir.Value
    kind: ir.MemRefType
    offset: int

    @classmethod
    def of(cls, value: ir.Value) -> Slice | None:
        """Return the slice that ``value`` is; None for anything else."""
        if not isinstance(value.type, ir.MemRefType) or not value.type.has_static_shape or _is_bare_pointer(value.type):
            return None
        memory = value
        while producer(memory) in _SLICES and not _is_bare_pointer(memory.type):
            memory = memory.owner.operands[0]
        _, offset = value.type.get_strides_and_offset()
        is_known = _is_bare_pointer(memory.type) and offset != ir.MemRefType.get_dynamic_stride_or_offset()
        return cls(memory, value.type, offset) if is_known else None

    @property
    def strides(self) -> list[int]:
        """The distances of elements along its axes."""
        return list(self.kind.get_strides_and_offset()[0])

    def emit(self, emit: ArithOps, memory: ir.Value, offset: ir.Value) -> ir.Value:
        """Emit the slice ``offset`` elements after the beginning of ``memory``."""
        strides, _ = self.kind.get_strides_and_offset()
        dynamic = ir.MemRefType.get_dynamic_stride_or_offset()
        layout = ir.StridedLayoutAttr.get(dynamic, strides, emit.context)
        kind = ir.MemRefType.get(self.kind.shape, self.kind.element_type, layout, loc=emit.location)
        numbers = {"static_offsets": [dynamic], "static_sizes": self.kind.shape, "static_strides": strides}
        attributes: dict[str, ir.Attribute] = {key: emit.array(number) for key, number in numbers.items()}
        attributes["operandSegmentSizes"] = emit.segments(1, 1, 0, 0)
        return emit.op("memref.reinterpret_cast", [kind], [memory, offset], attributes).result


_SLICES = tuple(f"memref.{name}" for name in ("collapse_shape", "expand_shape", "subview"))


def _argument_type(value_type: ir.Type) -> ir.Type:
    """Return the type by which a value is passed: the bits of 16-bit floats, which take a runtime library to pass."""
    return ir.IntegerType.get_signless(16) if isinstance(value_type, ir.BF16Type | ir.F16Type) else value_type


def _bitcast(value: ir.Value, result: ir.Type) -> ir.Value:
    if value.type == result:
        return value
    return Emitter(ir.InsertionPoint.current, ir.Location.current).value("arith.bitcast", result, value)


def _say_what_is_distinct(kernel: func_d.FuncOp, passed: Sequence[ir.Value]) -> None:
    """Mark the buffers that share no memory with others which the kernel takes: LLVM then keeps sums in registers."""
    if "llvm.bareptr" not in kernel.attributes:
        return
    owners = {i: memory_of(value) for i, value in enumerate(passed) if isinstance(value.type, ir.MemRefType)}
    if any(owner is None for owner in owners.values()):
        return
    roots = list(owners.values())
    noalias = {"llvm.noalias": ir.UnitAttr.get()}
    kernel.attributes["arg_attrs"] = ir.ArrayAttr.get(
        [ir.DictAttr.get(noalias if i in owners and roots.count(owners[i]) == 1 else {}) for i in range(len(passed))]
    )


def _trip_count(op: ir.Operation) -> float:
    """Return the number of iterations of the innermost bodies of a loop; infinity if it is dynamic."""
    inner = sum(_trip_count(op_) for region in op.regions for block in region for op_ in block if list(op_.regions))
    if op.name == "scf.if":
        return inner
    if op.name == "scf.parallel":
        count = len(op.operands) // 3
        sizes = [constant_bound(value) for value in list(op.operands)[count : 2 * count]]
        return math.prod(math.inf if size is None else size for size in sizes) * max(inner, 1)
    bounds = [constant_bound(value) for value in list(op.operands)[:3]] if op.name == "scf.for" else []
    known = [bound for bound in bounds if bound is not None]
    if len(known) != 3:
        return math.inf
    start, stop, step = known
    return max(stop - start, 0) // max(step, 1) * max(inner, 1)


def _values_of(op: ir.Operation) -> list[ir.Value]:
    return [*op.results, *(value for region in op.regions for block in region for value in block.arguments)]


def _is_bare_pointer(value_type: ir.Type) -> bool:
    """Whether the address is all that the type leaves open: bare pointers can be passed."""
    if not isinstance(value_type, ir.MemRefType):
        return True
    return value_type.has_static_shape and value_type.layout == ir.AffineMapAttr.get(
        ir.AffineMap.get_identity(value_type.rank)
    )
