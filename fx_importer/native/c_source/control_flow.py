"""Loops and branches of scf, and calls of libraries, as statements of C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import terminator
from fx_importer.native.c_source.scalars import paren, plain
from fx_importer.rewrites.native.cmsis_nn_calls import IN_NAMES

if TYPE_CHECKING:
    from fx_importer.native.c_source.functions import FunctionWriter


def _for(writer: FunctionWriter, op: ir.Operation) -> None:
    low, high, step, *initial = op.operands
    block = op.regions[0].blocks[0]
    variable, *carried = block.arguments
    for value, first, result in zip(carried, initial, op.results, strict=True):
        parts = writer.parts(first)
        for declared, text in zip(writer.declare(value), parts, strict=True):
            writer.line(f"{declared} = {text};")
        writer.share(result, value)
    bounds = [writer.scalar(value) for value in (low, high, step)]
    after = writer.before_loop(block, variable) if _runs(bounds) and not carried else ()
    with writer.loop(variable, *bounds):
        writer.body(block)
        writer.assign(carried, list(terminator(block).operands))
    for line in after:
        writer.line(line)


def _runs(bounds: Sequence[str]) -> bool:
    """Return whether a loop runs at least once."""
    low, high, _ = bounds
    return low.isdecimal() and high.isdecimal() and int(low) < int(high)


def _parallel(writer: FunctionWriter, op: ir.Operation) -> None:
    if op.results:
        raise UsageError(f"C source has no form of a reduction in scf.parallel ({op.location})")
    lows, highs, steps, _ = _parallel_segments(op)
    block = op.regions[0].blocks[0]
    with ExitStack() as loops:
        all_bounds = [[writer.scalar(value) for value in bounds] for bounds in zip(lows, highs, steps, strict=True)]
        for variable, bounds in zip(block.arguments, all_bounds, strict=True):
            if variable == block.arguments[len(all_bounds) - 1] and _runs(bounds):
                for line in writer.before_loop(block, variable):
                    loops.callback(writer.line, line)
            loops.enter_context(writer.loop(variable, *bounds))
        writer.body(block)


def _if(writer: FunctionWriter, op: ir.Operation) -> None:
    for result in op.results:
        for declared in writer.declare(result):
            writer.line(f"{declared};")
    then, other = (region.blocks[0] if len(region.blocks) else None for region in op.regions)
    assert then is not None
    branches = [
        (f"if ({plain(writer.scalar(op.operands[0]))})", then),
        *([("else", other)] if other is not None else []),
    ]
    for head, block in branches:
        with writer.braces(head):
            writer.body(block)
            writer.assign(list(op.results), list(terminator(block).operands))


def _while(writer: FunctionWriter, op: ir.Operation) -> None:
    before, after = (region.blocks[0] for region in op.regions)
    for value, first in zip(before.arguments, op.operands, strict=True):
        parts = writer.parts(first)
        for declared, text in zip(writer.declare(value), parts, strict=True):
            writer.line(f"{declared} = {text};")
    for result in op.results:
        for declared in writer.declare(result):
            writer.line(f"{declared};")
    with writer.braces("for (;;)"):
        writer.body(before)
        condition, *passed = terminator(before).operands
        holds = writer.new_name("v")
        writer.line(f"const bool {holds} = {plain(writer.scalar(condition))};")
        writer.assign(list(op.results), passed)
        writer.line(f"if (!{holds}) break;")
        for value, result in zip(after.arguments, op.results, strict=True):
            writer.share(value, result)
        writer.body(after)
        writer.assign(list(before.arguments), list(terminator(after).operands))


def _index_switch(writer: FunctionWriter, op: ir.Operation) -> None:
    for result in op.results:
        for declared in writer.declare(result):
            writer.line(f"{declared};")
    cases = list(ir.DenseI64ArrayAttr(op.attributes["cases"]))
    default, *regions = op.regions
    with writer.braces(f"switch ({plain(writer.scalar(op.operands[0]))})"):
        labels = [*(f"case {number}:" for number in cases), "default:"]
        for label, region in zip(labels, [*regions, default], strict=True):
            with writer.braces(label, "} break;"):
                writer.body(region.blocks[0])
                writer.assign(list(op.results), list(terminator(region.blocks[0]).operands))


def _parallel_segments(op: ir.Operation) -> list[list[ir.Value]]:
    lengths = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    values = iter(op.operands)
    return [[next(values) for _ in range(length)] for length in lengths]


def _call(writer: FunctionWriter, op: ir.Operation) -> None:
    """Write a call of BLAS or CMSIS-NN: buffers are pointers to their first elements."""
    name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
    if "cblas_" not in name and IN_NAMES not in name:
        raise UsageError(f"C source has no form of a call of '{name}': build a library or an object")
    arguments = [
        _pointer(writer, x) if isinstance(x.type, ir.MemRefType) else plain(writer.scalar(x)) for x in op.operands
    ]
    (declared,) = writer.declare(op.results[0], "const ") if op.results else ("",)
    writer.line(f"{declared}{' = ' * bool(declared)}{name}({', '.join(arguments)});")


def _pointer(writer: FunctionWriter, value: ir.Value) -> str:
    buffer = writer.buffer(value)
    return buffer.pointer if str(buffer.offset) == "0" else f"{buffer.pointer} + {paren(str(buffer.offset))}"


CONTROL_FLOW: dict[str, Callable[[FunctionWriter, ir.Operation], None]] = {
    "scf.for": _for,
    "scf.parallel": _parallel,
    "scf.if": _if,
    "scf.while": _while,
    "scf.index_switch": _index_switch,
    "func.call": _call,
}
