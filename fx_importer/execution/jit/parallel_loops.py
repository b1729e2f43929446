"""Loops on several threads: those of the OpenMP library that PyTorch loaded, as many as `torch.set_num_threads` says.

A kernel takes the bounds of one of its parallel loops; each thread gets a range of them. No sum is split, so results do
not depend on the number of threads.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import producer
from fx_importer.mlir.emit_llvm import POINTER, LlvmOps
from fx_importer.mlir.walk import operations

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


def loop_to_split(loop: ir.Operation) -> int | None:
    """Return the number of the loop of an ``scf.parallel`` that threads share; None if there is none."""
    is_tiled = TILES in loop.attributes
    if loop.name != "scf.parallel" or not has_threads() or (not is_tiled and operations(loop, _SEQUENTIAL)):
        return None
    count = len(loop.regions[0].blocks[0].arguments)
    lower, upper, step = (list(loop.operands)[part * count : part * count + count] for part in range(3))
    sizes = [constant_bound(each) for each in upper]
    for number, size in enumerate(sizes):
        if (
            (size is None or size >= _SMALLEST_SPLIT)
            and constant_bound(lower[number]) == 0
            and constant_bound(step[number]) == 1
        ):
            return number
    return 0 if is_tiled else None


_SEQUENTIAL = ("func.call", "memref.alloc", "memref.alloca")
"""What stays on one thread: checks leave a loop through longjmp, and kernels of PyTorch use threads themselves."""


def constant_bound(value: ir.Value) -> int | None:
    """Return the bound or step of a loop; None if it is dynamic."""
    return None if producer(value) != "arith.constant" else ir.IntegerAttr(value.owner.attributes["value"]).value


def launch_on_threads(module: ir.Module) -> None:
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
    emit = LlvmOps(ir.InsertionPoint(module.body), ir.Location.unknown(module.context))
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
        inside.value("llvm.sext", "i64", inside.call_llvm(each, ["i32"], []).result)
        for each in ("omp_get_thread_num", "omp_get_num_threads")
    )
    size = inside.same_type("sub", high, low)

    def bound(number: ir.Value) -> ir.Value:
        """Emit where the part of the thread ``number`` begins."""
        offset = inside.same_type("sdiv", inside.same_type("mul", size, number), threads)
        return inside.same_type("add", low, offset)

    following = inside.same_type("add", thread, inside.constant(1, "i64"))
    inside.call_llvm(kernel, [], [*passed, bound(thread), bound(following)])
    inside.op("llvm.return", [])
