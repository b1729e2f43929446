"""Loops on several threads: those of the OpenMP library that PyTorch loaded, as many as `torch.set_num_threads` says.

A kernel takes the bounds of one of its parallel loops; each thread gets a range of them. No sum is split, so results do
not depend on the number of threads.
"""

from __future__ import annotations

import ctypes
import functools

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import producer
from fx_importer.mlir.walk import operations

TILES = "fx_importer.tiles"
"""The attribute of a loop that threads share, whatever its body calls."""
PREFIX = "parallel_"
"""Of the names of kernels that take bounds, as their last two arguments."""
DYNAMIC_PREFIX = f"{PREFIX}dynamic_"
"""Of those that start no threads if their bounds are less than `_SMALLEST_DYNAMIC` apart: the sizes may be small."""
SMALLEST_TRIP_COUNT = 1 << 15
"""Loops of fewer iterations take less time than it takes to start threads."""
_SMALLEST_SPLIT = 16
_SMALLEST_DYNAMIC = 256
_RUNTIME = """
llvm.func @GOMP_parallel(!llvm.ptr, !llvm.ptr, i32, i32)
llvm.func @omp_get_thread_num() -> i32
llvm.func @omp_get_num_threads() -> i32
"""


@functools.cache
def has_threads() -> bool:
    """Whether this process has an OpenMP library with GCC's interface."""
    try:
        return all(hasattr(ctypes.CDLL(None), name) for name in ("GOMP_parallel", "omp_get_thread_num"))
    except OSError:
        return False


def loop_to_split(loop: ir.Operation) -> int | None:
    """Return the number of the loop of an ``scf.parallel`` that threads share; None if there is none."""
    if TILES in loop.attributes and has_threads():
        return 0
    if loop.name != "scf.parallel" or not has_threads() or operations(loop, _SEQUENTIAL):
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
    return None


_SEQUENTIAL = ("func.call", "memref.alloc", "memref.alloca")
"""What stays on one thread: checks leave a loop through longjmp, and kernels of PyTorch use threads themselves."""


def constant_bound(value: ir.Value) -> int | None:
    """Return the bound or step of a loop; None if it is dynamic."""
    return None if producer(value) != "arith.constant" else ir.IntegerAttr(value.owner.attributes["value"]).value


def launch_on_threads(module: ir.Module) -> None:
    """Have all calls of kernels named `PREFIX` in ``module``, in the LLVM dialect, run them on several threads."""
    kernels = [op for op in module.body if op.operation.name == "llvm.func" and _name(op.operation).startswith(PREFIX)]
    if not kernels:
        return
    types = {_name(each.operation): _inputs(each.operation) for each in kernels}
    for op in operations(module.operation, ("llvm.call",)):
        if "callee" in op.attributes and (name := ir.FlatSymbolRefAttr(op.attributes["callee"]).value).startswith(
            PREFIX
        ):
            op.attributes["callee"] = ir.FlatSymbolRefAttr.get(f"launch_{name}", module.context)
    declared = {_name(op.operation) for op in module.body if op.operation.name == "llvm.func"}
    text = "".join(f"llvm.func @{name}({', '.join(taken)})\n{_launcher(name, taken)}" for name, taken in types.items())
    for op in ir.Module.parse(_RUNTIME + text, module.context).body:
        if _name(op.operation) not in declared:
            module.body.append(op.clone())


def _name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value if "sym_name" in op.attributes else ""


def _inputs(function: ir.Operation) -> list[str]:
    """Return the types of the arguments of an ``llvm.func``, which the bindings do not give."""
    inside = (
        str(ir.TypeAttr(function.attributes["function_type"]).value)
        .removeprefix("!llvm.func<void (")
        .removesuffix(")>")
    )
    return [f"!llvm.{each}" if each == "ptr" else each for each in inside.split(", ")]


def _launcher(kernel: str, types: list[str]) -> str:
    """Return a function that calls ``kernel`` on several threads, and the function that each thread runs."""
    struct = f"!llvm.struct<({', '.join(types)})>"
    count = len(types)
    parameters = ", ".join(f"%a{i}: {each}" for i, each in enumerate(types))
    inserts = "".join(f"  %s{i + 1} = llvm.insertvalue %a{i}, %s{i}[{i}] : {struct}\n" for i in range(count))
    extracts = "".join(f"  %a{i} = llvm.extractvalue %s[{i}] : {struct}\n" for i in range(count))
    passed = ", ".join([*(f"%a{i}" for i in range(count - 2)), "%from", "%to"])
    smallest = _SMALLEST_DYNAMIC if kernel.startswith(DYNAMIC_PREFIX) else 0
    low, high = f"%a{count - 2}", f"%a{count - 1}"
    return f"""
llvm.func internal @launch_{kernel}({parameters}) {{
  %one = llvm.mlir.constant(1 : i64) : i64
  %zero = llvm.mlir.constant(0 : i32) : i32
  %data = llvm.alloca %one x {struct} : (i64) -> !llvm.ptr
  %s0 = llvm.mlir.undef : {struct}
{inserts}  llvm.store %s{count}, %data : {struct}, !llvm.ptr
  %size = llvm.sub {high}, {low} : i64
  %least = llvm.mlir.constant({smallest} : i64) : i64
  %few = llvm.icmp "slt" %size, %least : i64
  %single = llvm.mlir.constant(1 : i32) : i32
  %threads = llvm.select %few, %single, %zero : i1, i32
  %run = llvm.mlir.addressof @run_{kernel} : !llvm.ptr
  llvm.call @GOMP_parallel(%run, %data, %threads, %zero) : (!llvm.ptr, !llvm.ptr, i32, i32) -> ()
  llvm.return
}}
llvm.func internal @run_{kernel}(%data: !llvm.ptr) {{
  %s = llvm.load %data : !llvm.ptr -> {struct}
{extracts}  %t = llvm.call @omp_get_thread_num() : () -> i32
  %n = llvm.call @omp_get_num_threads() : () -> i32
  %thread = llvm.sext %t : i32 to i64
  %threads = llvm.sext %n : i32 to i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %next = llvm.add %thread, %one : i64
  %size = llvm.sub {high}, {low} : i64
  %p = llvm.mul %size, %thread : i64
  %q = llvm.mul %size, %next : i64
  %begin = llvm.sdiv %p, %threads : i64
  %end = llvm.sdiv %q, %threads : i64
  %from = llvm.add {low}, %begin : i64
  %to = llvm.add {low}, %end : i64
  llvm.call @{kernel}({passed}) : ({", ".join(types)}) -> ()
  llvm.return
}}
"""
