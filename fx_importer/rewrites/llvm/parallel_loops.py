"""Loops on several threads of an OpenMP library.

For the JIT, it is the one that PyTorch loaded, with as many threads as `torch.set_num_threads` says.

A kernel takes the bounds of one of its parallel loops; each thread gets a range of them. No sum is split, so results do
not depend on the number of threads.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer
from fx_importer.mlir.emit.llvm import POINTER, LlvmOps
from fx_importer.mlir.functions import body_of
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.llvm.arena import memory_of
from fx_importer.rewrites.llvm.processor import processor_of

TILES = "fx_importer.tiles"
"""The attribute of a loop that threads share, whatever its body calls."""
PREFIX = "fx_importer_parallel_"
"""Of the names of kernels that take bounds, as their last two arguments."""
DYNAMIC_PREFIX = f"{PREFIX}dynamic_"
"""Of those that start no threads if their bounds are less than `_SMALLEST_DYNAMIC` apart: the sizes may be small."""
SMALLEST_TRIP_COUNT = 1 << 15
"""Loops of fewer iterations take less time than it takes to start threads."""
_SMALLEST_SPLIT = 16
_SMALLEST_DYNAMIC = 256


@functools.cache
def has_threads() -> bool:
    """Whether this process has an OpenMP library with GCC's interface."""
    try:
        return all(hasattr(ctypes.CDLL(None), name) for name in ("GOMP_parallel", "omp_get_thread_num"))
    except OSError:
        return False


@dataclass(frozen=True)
class Shared:
    """The loop ``number`` of ``loop``, an ``scf.parallel``, that threads share."""

    loop: ir.Operation
    number: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The operands of ``loop`` that are its bounds."""
        return self.number, self.number + len(self.loop.regions[0].blocks[0].arguments)


def loop_to_split(outer: ir.Operation) -> Shared | None:
    """Return the loop that threads share in the outermost loop ``outer``; None if there is none.

    It may be inside loops of a sum, like the loop over channels inside one over images: each thread then sums its
    channels. A sum of rows stays on one thread: its parts are in the caches of the threads that computed the rows, and
    two take no less.
    """
    is_tiled = TILES in outer.attributes
    processor = processor_of(outer)
    if processor is not None and operations(outer, ("cf.assert",)):
        return None  # native code returns its status
    has = has_threads() if processor is None else processor.threads
    if not has or (not is_tiled and operations(outer, _SEQUENTIAL)):
        return None
    loop = outer
    while loop.name == "scf.for":
        if any(constant_bound(operand) is None for operand in loop.operands):
            return None
        deeper = [inner.operation for inner in loop.regions[0].blocks[0] if inner.operation.regions]
        if len(deeper) != 1 or loop.results:
            return None
        (loop,) = deeper
    if loop.name != "scf.parallel" or (loop != outer and not operations(loop, ("scf.for",))):
        return None
    counters = loop.regions[0].blocks[0].arguments
    count = len(counters)
    lower, upper, step = (list(loop.operands)[part * count : part * count + count] for part in range(3))
    for number, size in enumerate(map(constant_bound, upper)):
        if (
            (size is None or size >= _SMALLEST_SPLIT)
            and constant_bound(lower[number]) == 0
            and constant_bound(step[number]) == 1
            and (loop == outer or _is_apart(outer, loop, number))
        ):
            return Shared(loop, number)
    return Shared(loop, 0) if is_tiled else None


def _is_apart(outer: ir.Operation, loop: ir.Operation, number: int) -> bool:
    """Return whether a thread may run ``outer`` for some iterations of a loop in it, wherever the other threads are.

    Of buffers that are written, each iteration then accesses its own part: the counter is an index along an axis.
    """
    inside = operations(outer)
    counter = loop.regions[0].blocks[0].arguments[number]
    if any(operand.owner in inside for operand in loop.operands if not isinstance(operand.owner, ir.Block)):
        return False  # bounds are passed to the kernel
    axes: dict[ir.Value, set[int]] = {}
    written: set[ir.Value] = set()
    for op in inside:
        if op.name in ("memref.load", "memref.store"):
            buffer, *indices = list(op.operands)[op.name == "memref.store" :]
            along = {axis for axis, index in enumerate(indices) if index == counter}
            axes[buffer] = axes.get(buffer, along) & along
            if op.name == "memref.store":
                written.add(buffer)
        elif op.name.partition(".")[0] not in ("arith", "math", "scf"):
            return False
    if not all(axes[memory] for memory in written):
        return False
    memories = [memory_of(value) for value in written]
    read = [memory_of(value) for value in axes.keys() - written if producer(value) != "memref.get_global"]
    if any(memory is None for memory in (*memories, *read)) or "arguments" in memories:
        return False
    return len(set(memories)) == len(memories) and not any(memory in memories for memory in read)


_SEQUENTIAL = ("func.call", "memref.alloc", "memref.alloca")
"""What stays on one thread: checks leave a loop through longjmp, and kernels of PyTorch use threads themselves."""


def constant_bound(value: ir.Value) -> int | None:
    """Return the bound or step of a loop; None if it is dynamic."""
    return None if producer(value) != "arith.constant" else ir.IntegerAttr(value.owner.attributes["value"]).value


@rewrite("fx-importer-launch-on-threads")
def launch_on_threads(module: ir.Operation) -> None:
    """Have all calls of kernels named `PREFIX` in ``module``, in the LLVM dialect, run them on several threads."""
    kernels = {
        name: [argument.type for argument in op.regions[0].blocks[0].arguments]
        for op in operations(module.operation, ("llvm.func",))
        if (name := ir.StringAttr(op.attributes["sym_name"]).value).startswith(PREFIX)
    }
    if not kernels:
        return
    for op in operations(module.operation, ("llvm.call",)):
        if "callee" in op.attributes and (name := ir.FlatSymbolRefAttr(op.attributes["callee"]).value) in kernels:
            op.attributes["callee"] = ir.FlatSymbolRefAttr.get(f"launch_{name}", module.context)
    emit = LlvmOps(ir.InsertionPoint(body_of(module)), ir.Location.unknown(module.context))
    emit.declare_llvm("GOMP_parallel", [POINTER, POINTER, "i32", "i32"])
    emit.declare_llvm("omp_get_thread_num", [], "i32")
    emit.declare_llvm("omp_get_num_threads", [], "i32")
    for name, types in kernels.items():
        _define_launcher(emit, name, types)
        _define_share(emit, name, types)


def _define_launcher(emit: LlvmOps, kernel: str, types: Sequence[ir.Type]) -> None:
    """Define the function that runs ``kernel``, which takes ``types``, on several threads, or on one if it is small."""
    inside, arguments = emit.define_llvm(f"launch_{kernel}", types)
    data = inside.on_stack(inside.pack(arguments))
    *_, low, high = arguments
    smallest = inside.constant(_SMALLEST_DYNAMIC if kernel.startswith(DYNAMIC_PREFIX) else 0, "i64")
    is_small = inside.compare("slt", inside.same_type("sub", high, low), smallest)
    all_threads = inside.constant(0, "i32")
    threads = inside.value("llvm.select", "i32", is_small, inside.constant(1, "i32"), all_threads)
    flags = inside.constant(0, "i32")
    inside.call_llvm("GOMP_parallel", [], [inside.address_of(f"run_{kernel}"), data, threads, flags])
    inside.op("llvm.return", [])


def _define_share(emit: LlvmOps, kernel: str, types: Sequence[ir.Type]) -> None:
    """Define the function that each thread runs: ``kernel`` on the thread's part of the bounds."""
    inside, (data,) = emit.define_llvm(f"run_{kernel}", [POINTER])
    *passed, low, high = inside.load_struct(data, types)
    thread, threads = (
        inside.value("llvm.sext", "i64", inside.call_llvm(name, ["i32"], []).result)
        for name in ("omp_get_thread_num", "omp_get_num_threads")
    )
    size = inside.same_type("sub", high, low)

    def bound(number: ir.Value) -> ir.Value:
        """Emit where the part of the thread ``number`` begins."""
        offset = inside.same_type("sdiv", inside.same_type("mul", size, number), threads)
        return inside.same_type("add", low, offset)

    following = inside.same_type("add", thread, inside.constant(1, "i64"))
    inside.call_llvm(kernel, [], [*passed, bound(thread), bound(following)])
    inside.op("llvm.return", [])
