"""Integers of 64 bits in TOSA: in 32 bits where they fit, and as the specification has them where they do not.

The C++ lowerings leave casts between such integers and floats, and gathers of such integers at indices of 32 bits,
which TOSA does not have; and many casts back and forth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fx_importer.diagnostics.mlir_diagnostics import emit_errors, once_each, warn_of
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Emitter, is_used
from fx_importer.rewrites.tosa.i64_casts import cast, with_element
from fx_importer.rewrites.tosa.integer_ranges import Ranges, functions_of, is_bound, terminator
from fx_importer.rewrites.tosa.intervals import INT32, element_bits
from fx_importer.rewrites.tosa.range_rules import constant_array

_INDEXED = ("tosa.gather", "tosa.scatter")
_LONG_POSITIONS = ("tosa.argmax",)
"""Of integers, the specification has their results in 64 bits only."""


def fit_tosa_integers(module: ir.Operation) -> None:
    """Compute in 32 bits what is known to fit; arguments and results of functions stay as they are."""
    _Narrowing(module, Ranges(module, narrow=False), everything=False).run()


def narrow_tosa_integers(module: ir.Operation) -> None:
    """Make every integer of 64 bits one of 32, arguments and results included. What may not fit is an error."""
    ranges = Ranges(module, narrow=True)
    emit_errors(_unfit(ranges))
    _Narrowing(module, ranges, everything=True).run()


def narrow_tosa_integers_unproved(module: ir.Operation) -> None:
    """Make every integer of 64 bits one of 32, and warn of what may not fit."""
    ranges = Ranges(module, narrow=True)
    warn_of(_unfit(ranges))
    _Narrowing(module, ranges, everything=True).run()


def _unfit(ranges: Ranges) -> Iterator[tuple[ir.Location, str]]:
    def sentence(value: ir.Value) -> tuple[ir.Location, str]:
        found = ranges.outside[value]
        owner = value.owner
        what = "an argument of a region" if isinstance(owner, ir.Block) else f"'{owner.name}'"
        location = owner.owner.location if isinstance(owner, ir.Block) else owner.location
        return location, f"narrow_integers: {what} may not fit into 32 bits: {found.low:.0f} to {found.high:.0f}"

    return once_each(map(sentence, ranges.outside))


@dataclass(frozen=True)
class _Group:
    """Values that have one type: ``results``, made from ``operands``, each given as an operation and a position."""

    results: Sequence[ir.Value]
    operands: Sequence[tuple[ir.Operation, int]]


class _Narrowing:
    """Gives each value of 64 bits that fits a form in 32 bits, and each that is used in 64 bits a form in those."""

    def __init__(self, module: ir.Operation, ranges: Ranges, *, everything: bool):
        self._module = module
        self._ranges = ranges
        self._everything = everything
        self._long: set[ir.Value] = set()
        """What had 64 bits at first."""
        self._short_forms: dict[ir.Value, ir.Value] = {}
        self._long_forms: dict[ir.Value, ir.Value] = {}
        self._replaced: list[ir.Operation] = []
        """Operations whose result has forms made elsewhere."""

    def run(self) -> None:
        functions = functions_of(self._module)
        blocks = [function.regions[0].blocks[0] for function in functions]
        for block in blocks:
            self._note(block)
        for function, block in zip(functions, blocks, strict=True):
            self._define(block.arguments, short=self._everything)
            self._rewrite(block)
            self._return(function, block)
        for op in reversed(self._replaced):
            if not is_used(op.results[0]):
                op.erase()

    def _note(self, block: ir.Block) -> None:
        for values in (block.arguments, *(op.results for op in block.operations)):
            self._long.update(value for value in values if element_bits(value) == 64)
        for op in block.operations:
            for region in op.regions:
                for inner in region.blocks:
                    self._note(inner)

    def _fits(self, value: ir.Value) -> bool:
        if self._everything or is_bound(value):
            return True
        found = self._ranges[value]
        return found is not None and found.within(INT32)

    # --- the two forms of a value -----------------------------------------------------------------------------------

    def _define(self, values: Sequence[ir.Value], *, short: bool) -> None:
        for value in values:
            if value in self._long:
                if short:
                    value.set_type(with_element(value.type, "i32"))
                (self._short_forms if short else self._long_forms)[value] = value

    def _short(self, value: ir.Value) -> ir.Value:
        if value not in self._short_forms:
            self._short_forms[value] = _cast_after(self._long_forms[value], "i32")
        return self._short_forms[value]

    def _as_long(self, value: ir.Value) -> ir.Value:
        if value not in self._long_forms:
            self._long_forms[value] = _cast_after(self._short_forms[value], "i64")
        return self._long_forms[value]

    def _use(self, op: ir.Operation, position: int, *, short: bool) -> None:
        value = op.operands[position]
        if value in self._long:
            op.operands[position] = self._short(value) if short else self._as_long(value)

    # --- operations -------------------------------------------------------------------------------------------------

    def _rewrite(self, block: ir.Block) -> None:
        for each in list(block.operations):
            op = each.operation
            if op.name == "tosa.const":
                self._constant(op)
            elif op.name == "tosa.cast":
                self._cast(op)
            elif op.name in ("tosa.while_loop", "tosa.cond_if"):
                self._regions(op)
            elif op.name not in ("tosa.yield", "func.return") and not self._chosen(op):
                self._plain(op)

    def _constant(self, op: ir.Operation) -> None:
        value = op.results[0]
        if value not in self._long:
            return
        array = constant_array(op.attributes["values"]) if self._fits(value) else None
        self._define([value], short=array is not None)
        if array is not None:
            narrow = np.clip(array, INT32.low, INT32.high).astype(np.int32)
            op.attributes["values"] = ir.DenseElementsAttr.get(narrow, type=value.type, context=op.context)

    def _cast(self, op: ir.Operation) -> None:
        (source,), (result,) = op.operands, op.results
        if source not in self._long and result not in self._long:
            return
        if source in self._long:
            source = self._short(source) if self._fits(source) else self._as_long(source)
        emit = Emitter(ir.InsertionPoint(op), op.location)
        if result not in self._long:
            result.replace_all_uses_with(cast(emit, source, result.type))
            op.erase()
            return
        short = self._fits(result)
        made = cast(emit, source, with_element(result.type, "i32") if short else result.type)
        (self._short_forms if short else self._long_forms)[result] = made
        self._replaced.append(op)

    def _chosen(self, op: ir.Operation) -> bool:
        """Whether ``op`` is a selection that always chooses one side, which then takes its place."""
        truth = self._ranges[op.operands[0]] if op.name == "tosa.select" else None
        if truth is None or truth.low != truth.high:
            return False
        result, chosen = op.results[0], op.operands[1 if truth.low else 2]
        if with_element(result.type, "i1") != with_element(chosen.type, "i1"):
            return False
        if result in self._long:
            for forms in (self._short_forms, self._long_forms):
                if chosen in forms:
                    forms[result] = forms[chosen]
            self._replaced.append(op)
        else:
            result.replace_all_uses_with(chosen)
            op.erase()
        return True

    def _plain(self, op: ir.Operation) -> None:
        operands = list(range(len(op.operands)))
        if op.name in _INDEXED:
            operands.remove(1)
        results = list(op.results)
        long = [position for position in operands if op.operands[position] in self._long]
        short = all(self._fits(value) for value in (*results, *(op.operands[p] for p in long)) if value in self._long)
        if op.name == "func.call" or (op.name in _LONG_POSITIONS and element_bits(op.operands[0]) in (32, 64)):
            short = self._everything
        for position in operands:
            self._use(op, position, short=short)
        if op.name in _INDEXED:
            self._index(op)
        self._define(results, short=short)

    def _index(self, op: ir.Operation) -> None:
        """Give the indices the width that the specification wants: that of the values if these have 64 bits."""
        indices = op.operands[1]
        if indices in self._long:
            indices = self._short(indices)  # below a size, which is below 2^31
        if element_bits(op.operands[0]) == 64 and element_bits(indices) != 64:
            indices = cast(Emitter(ir.InsertionPoint(op), op.location), indices, with_element(indices.type, "i64"))
        op.operands[1] = indices

    def _regions(self, op: ir.Operation) -> None:
        for group in _groups(op):
            if group.results[0] not in self._long:
                continue
            values = [*group.results, *(user.operands[position] for user, position in group.operands)]
            short = all(self._fits(value) for value in values)
            # The operands in front can be cast by now; those at the end of a region, once the region is done.
            self._define(group.results, short=short)
            for user, position in group.operands:
                if user == op:
                    self._use(user, position, short=short)
        for region in op.regions:
            for block in region.blocks:
                self._rewrite(block)
        for group in _groups(op):
            for user, position in group.operands:
                if user != op and group.results[0] in self._long:
                    self._use(user, position, short=element_bits(group.results[0]) == 32)

    def _return(self, function: ir.Operation, block: ir.Block) -> None:
        last = terminator(block)
        for position in range(len(last.operands)):
            self._use(last, position, short=self._everything)
        type_ = ir.FunctionType.get([a.type for a in block.arguments], [o.type for o in last.operands], last.context)
        function.attributes["function_type"] = ir.TypeAttr.get(type_, last.context)


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
    return cast(Emitter(point, location), value, with_element(value.type, element))
