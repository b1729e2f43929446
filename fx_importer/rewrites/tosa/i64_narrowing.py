"""Narrowing of i64 to i32 in TOSA where values fit, and legalization of i64 to the specification where they do not.

The C++ lowerings leave casts between i64 and floats, and gathers of i64 at i32 indices, which TOSA does not have, and
many casts back and forth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fx_importer.diagnostics.mlir_diagnostics import deduplicated, emit_errors, emit_warnings
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import is_used, terminator, update_function_type, with_element
from fx_importer.mlir.emit.tosa import TosaOps
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.tosa.i64_casts import cast
from fx_importer.rewrites.tosa.integer_ranges import Ranges, functions_of, is_bound
from fx_importer.rewrites.tosa.intervals import INT32, element_bits
from fx_importer.rewrites.tosa.range_rules import constant_array

_INDEXED = ("tosa.gather", "tosa.scatter")
_I64_RESULTS = ("tosa.argmax",)
"""Operations whose result, on integers, the specification has in 64 bits only."""


@rewrite("fx-importer-fit-tosa-integers")
def fit_tosa_integers(module: ir.Operation) -> None:
    """Compute in 32 bits what provably fits; arguments and results of functions keep their types."""
    _IntegerNarrowing(module, Ranges(module, narrow=False), everything=False).run()


@rewrite("fx-importer-narrow-tosa-integers")
def narrow_tosa_integers(module: ir.Operation) -> None:
    """Narrow every i64 to i32, arguments and results included. Report an error for each that may not fit."""
    ranges = Ranges(module, narrow=True)
    emit_errors(_out_of_range(ranges))
    _IntegerNarrowing(module, ranges, everything=True).run()


@rewrite("fx-importer-narrow-tosa-integers-unproved")
def narrow_tosa_integers_unproved(module: ir.Operation) -> None:
    """Narrow every i64 to i32, and warn of each that may not fit."""
    ranges = Ranges(module, narrow=True)
    emit_warnings(_out_of_range(ranges))
    _IntegerNarrowing(module, ranges, everything=True).run()


def _out_of_range(ranges: Ranges) -> Iterator[tuple[ir.Location, str]]:
    def message(value: ir.Value) -> tuple[ir.Location, str]:
        outside = ranges.outside[value]
        owner = value.owner
        what = "an argument of a region" if isinstance(owner, ir.Block) else f"'{owner.name}'"
        location = owner.owner.location if isinstance(owner, ir.Block) else owner.location
        return location, f"narrow_integers: {what} may not fit into 32 bits: {outside.low:.0f} to {outside.high:.0f}"

    return deduplicated(map(message, ranges.outside))


@dataclass(frozen=True)
class _Group:
    """Values of one type: ``results``, and the ``operands`` they come from, each as an operation and a position."""

    results: Sequence[ir.Value]
    operands: Sequence[tuple[ir.Operation, int]]


class _IntegerNarrowing:
    """Gives each i64 value an i32 form where it fits, and an i64 form where one is used."""

    def __init__(self, module: ir.Operation, ranges: Ranges, *, everything: bool):
        self._module = module
        self._ranges = ranges
        self._everything = everything
        self._i64_values: set[ir.Value] = set()
        """The values that had 64 bits at first."""
        self._i32_forms: dict[ir.Value, ir.Value] = {}
        self._i64_forms: dict[ir.Value, ir.Value] = {}
        self._replaced: list[ir.Operation] = []
        """Operations whose result has forms made elsewhere."""

    def run(self) -> None:
        functions = functions_of(self._module)
        blocks = [function.regions[0].blocks[0] for function in functions]
        for block in blocks:
            self._collect(block)
        for function, block in zip(functions, blocks, strict=True):
            self._define(block.arguments, narrow=self._everything)
            self._rewrite(block)
            self._return(function, block)
        for op in reversed(self._replaced):
            if not is_used(op.results[0]):
                op.erase()

    def _collect(self, block: ir.Block) -> None:
        for values in (block.arguments, *(op.results for op in block.operations)):
            self._i64_values.update(value for value in values if element_bits(value) == 64)
        for op in block.operations:
            for region in op.regions:
                for inner in region.blocks:
                    self._collect(inner)

    def _fits(self, value: ir.Value) -> bool:
        if self._everything or is_bound(value):
            return True
        range_ = self._ranges[value]
        return range_ is not None and range_.within(INT32)

    # --- the two forms of a value -----------------------------------------------------------------------------------

    def _define(self, values: Sequence[ir.Value], *, narrow: bool) -> None:
        for value in values:
            if value in self._i64_values:
                if narrow:
                    value.set_type(with_element(value.type, "i32"))
                (self._i32_forms if narrow else self._i64_forms)[value] = value

    def _as_i32(self, value: ir.Value) -> ir.Value:
        if value not in self._i32_forms:
            self._i32_forms[value] = _cast_after(self._i64_forms[value], "i32")
        return self._i32_forms[value]

    def _as_i64(self, value: ir.Value) -> ir.Value:
        if value not in self._i64_forms:
            self._i64_forms[value] = _cast_after(self._i32_forms[value], "i64")
        return self._i64_forms[value]

    def _use(self, op: ir.Operation, position: int, *, narrow: bool) -> None:
        value = op.operands[position]
        if value in self._i64_values:
            op.operands[position] = self._as_i32(value) if narrow else self._as_i64(value)

    # --- operations -------------------------------------------------------------------------------------------------

    def _rewrite(self, block: ir.Block) -> None:
        for operation in list(block.operations):
            op = operation.operation
            if op.name == "tosa.const":
                self._constant(op)
            elif op.name == "tosa.cast":
                self._cast(op)
            elif op.name in ("tosa.while_loop", "tosa.cond_if"):
                self._regions(op)
            elif op.name not in ("tosa.yield", "func.return") and not self._fold_select(op):
                self._operation(op)

    def _constant(self, op: ir.Operation) -> None:
        value = op.results[0]
        if value not in self._i64_values:
            return
        array = constant_array(op.attributes["values"]) if self._fits(value) else None
        if array is None:
            self._define([value], narrow=False)
            return
        narrow = np.clip(array, INT32.low, INT32.high).astype(np.int32)
        if is_bound(value) and not np.array_equal(narrow, array):  # some of its uses may have 64 bits
            self._define([value], narrow=False)
            self._i32_forms[value] = TosaOps(ir.InsertionPoint.after(op), op.location).const_array(narrow)
            return
        self._define([value], narrow=True)
        op.attributes["values"] = ir.DenseElementsAttr.get(narrow, type=value.type, context=op.context)

    def _cast(self, op: ir.Operation) -> None:
        (source,), (result,) = op.operands, op.results
        if source not in self._i64_values and result not in self._i64_values:
            return
        if source in self._i64_values:
            source = self._as_i32(source) if self._fits(source) else self._as_i64(source)
        emit = TosaOps.before(op)
        if result not in self._i64_values:
            made = cast(emit, source, result.type)
            if made == source:  # it has 64 bits elsewhere: the cast stays, from i32 to i32, until it is folded
                op.operands[0] = source
                return
            result.replace_all_uses_with(made)
            op.erase()
            return
        narrow = self._fits(result)
        made = cast(emit, source, with_element(result.type, "i32") if narrow else result.type)
        (self._i32_forms if narrow else self._i64_forms)[result] = made
        self._replaced.append(op)

    def _fold_select(self, op: ir.Operation) -> bool:
        """Replace ``op`` by one of its sides if it is a select whose condition is constant; return whether it was."""
        condition = self._ranges[op.operands[0]] if op.name == "tosa.select" else None
        if condition is None or condition.low != condition.high:
            return False
        result, chosen = op.results[0], op.operands[1 if condition.low else 2]
        if with_element(result.type, "i1") != with_element(chosen.type, "i1"):
            return False
        if result in self._i64_values:
            for forms in (self._i32_forms, self._i64_forms):
                if chosen in forms:
                    forms[result] = forms[chosen]
            self._replaced.append(op)
        else:
            result.replace_all_uses_with(chosen)
            op.erase()
        return True

    def _operation(self, op: ir.Operation) -> None:
        operands = list(range(len(op.operands)))
        if op.name in _INDEXED:
            operands.remove(1)
        results = list(op.results)
        long = [position for position in operands if op.operands[position] in self._i64_values]
        narrow = all(
            self._fits(value) for value in (*results, *(op.operands[p] for p in long)) if value in self._i64_values
        )
        if op.name == "func.call" or (op.name in _I64_RESULTS and element_bits(op.operands[0]) in (32, 64)):
            narrow = self._everything
        for position in operands:
            self._use(op, position, narrow=narrow)
        if op.name in _INDEXED:
            self._index(op)
        self._define(results, narrow=narrow)

    def _index(self, op: ir.Operation) -> None:
        """Give the indices the width that the specification requires: 64 bits if the values have 64."""
        indices = op.operands[1]
        if indices in self._i64_values:
            indices = self._as_i32(indices)  # below a size, which is below 2^31
        if element_bits(op.operands[0]) == 64 and element_bits(indices) != 64:
            indices = cast(TosaOps.before(op), indices, with_element(indices.type, "i64"))
        op.operands[1] = indices

    def _regions(self, op: ir.Operation) -> None:
        for group in _groups(op):
            if group.results[0] not in self._i64_values:
                continue
            values = [*group.results, *(user.operands[position] for user, position in group.operands)]
            narrow = all(self._fits(value) for value in values)
            # Operands of the operation are defined by now; operands of terminators only once their region is rewritten.
            self._define(group.results, narrow=narrow)
            for user, position in group.operands:
                if user == op:
                    self._use(user, position, narrow=narrow)
        for region in op.regions:
            for block in region.blocks:
                self._rewrite(block)
        for group in _groups(op):
            for user, position in group.operands:
                if user != op and group.results[0] in self._i64_values:
                    self._use(user, position, narrow=element_bits(group.results[0]) == 32)

    def _return(self, function: ir.Operation, block: ir.Block) -> None:
        last = terminator(block)
        for position in range(len(last.operands)):
            self._use(last, position, narrow=self._everything)
        update_function_type(function)


def _groups(op: ir.Operation) -> Iterator[_Group]:
    blocks = [region.blocks[0] for region in op.regions]
    ends = [terminator(block) for block in blocks]
    if op.name == "tosa.while_loop":
        for position, result in enumerate(op.results):
            arguments = [block.arguments[position] for block in blocks]
            yield _Group([result, *arguments], [(op, position), (ends[1], position)])
        return
    for position in range(len(op.operands) - 1):
        arguments = [block.arguments[position] for block in blocks if len(block.arguments)]
        if arguments:
            yield _Group(arguments, [(op, position + 1)])
    for position, result in enumerate(op.results):
        yield _Group([result], [(end, position) for end in ends])


def _cast_after(value: ir.Value, element: str) -> ir.Value:
    owner = value.owner
    if isinstance(owner, ir.Block):
        point, location = ir.InsertionPoint.at_block_begin(owner), owner.owner.location
    else:
        point, location = ir.InsertionPoint.after(owner), owner.location
    return cast(TosaOps(point, location), value, with_element(value.type, element))
