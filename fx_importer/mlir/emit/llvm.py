"""Emitting the LLVM dialect: functions of C, memory on the stack, and arithmetic after the conversion to LLVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import CMPI
from fx_importer.mlir.emit.emitter import Emitter

if TYPE_CHECKING:
    from typing_extensions import Self

POINTER = "!llvm.ptr"
_DYNAMIC = f"array<i32: {-(2**31)}>"
"""The constant indices of ``llvm.getelementptr``, if the only index is an operand."""


class LlvmOps(Emitter):
    """Emits the LLVM dialect."""

    # --- functions and globals --------------------------------------------------------------------------------------

    def declare_llvm(self, name: str, inputs: Sequence[ir.Type | str], result: str = "void", *hints: str) -> None:
        """Emit an ``llvm.func`` without a body; ``hints`` are function attributes of LLVM."""
        self._function(name, inputs, result, {"passthrough": function_hints(self.context, *hints)} if hints else {})

    def define_llvm(
        self, name: str, inputs: Sequence[ir.Type | str], result: str = "void", *, linkage: str = "internal"
    ) -> tuple[Self, list[ir.Value]]:
        """Emit an ``llvm.func``; return an emitter in its body, which has to return, and its arguments."""
        op = self._function(name, inputs, result, {"linkage": self.attribute(f"#llvm.linkage<{linkage}>")})
        block = self.add_block(
            op.regions[0], [self.type(argument) if isinstance(argument, str) else argument for argument in inputs]
        )
        return self.inside(block), list(block.arguments)

    def _function(
        self, name: str, inputs: Sequence[ir.Type | str], result: str, attributes: dict[str, ir.Attribute]
    ) -> ir.Operation:
        kind = self.type(f"!llvm.func<{result} ({', '.join(map(str, inputs))})>")
        named = {
            "sym_name": ir.StringAttr.get(name, self.context),
            "function_type": ir.TypeAttr.get(kind, self.context),
        }
        return self.op("llvm.func", [], (), named | attributes, regions=1)

    def call_llvm(
        self, function: str | ir.Value, results: Sequence[ir.Type | str], operands: Sequence[ir.Value]
    ) -> ir.Operation:
        """Emit ``llvm.call`` of a function by name, or of the one at an address."""
        attributes: dict[str, ir.Attribute] = {"op_bundle_sizes": self.segments()}
        if isinstance(function, str):
            attributes["callee"] = ir.FlatSymbolRefAttr.get(function, self.context)
        else:
            operands = [function, *operands]
        attributes["operandSegmentSizes"] = self.segments(len(operands), 0)
        return self.op("llvm.call", results, operands, attributes)

    def define_zeros(self, name: str, type_: str, alignment: int) -> None:
        """Emit an ``llvm.mlir.global`` of ``type_`` that is zero, for this module only."""
        attributes = {
            "sym_name": ir.StringAttr.get(name, self.context),
            "global_type": ir.TypeAttr.get(self.type(type_), self.context),
            "linkage": self.attribute("#llvm.linkage<internal>"),
            "alignment": self.i64(alignment),
        }
        block = self.add_block(self.op("llvm.mlir.global", [], (), attributes, regions=1).regions[0], [])
        inside = self.inside(block)
        inside.op("llvm.return", [], [inside.value("llvm.mlir.zero", type_)])

    def address_of(self, symbol: str) -> ir.Value:
        """Emit the address of a function or a global."""
        name = {"global_name": ir.FlatSymbolRefAttr.get(symbol, self.context)}
        return self.op("llvm.mlir.addressof", [POINTER], (), name).result

    def branch(self, condition: ir.Value) -> tuple[Self, Self]:
        """End a block by a branch on ``condition``; return emitters in the block that is next if it holds, and if not.

        No value is passed to them.
        """
        block = self.point.block
        no = block.create_after()
        yes = block.create_after()
        self._end_block("llvm.cond_br", [condition], [yes, no], {"operandSegmentSizes": self.segments(1, 0, 0)})
        return self.inside(yes), self.inside(no)

    def _end_block(
        self,
        name: str,
        operands: Sequence[ir.Value],
        successors: Sequence[ir.Block],
        attributes: dict[str, ir.Attribute] | None = None,
    ) -> None:
        ir.Operation.create(
            name, operands=operands, attributes=attributes, successors=successors, loc=self.location, ip=self.point
        )

    def repeat(self, count: ir.Value, body: Callable[[Self, ir.Value], None]) -> Self:
        """End a block by a loop over ``body``, which takes an emitter and a counter; return an emitter after it."""
        test = self.point.block.create_after(count.type, arg_locs=[self.location])
        self._end_block("llvm.br", [self.constant(0, count.type)], [test])
        head, (index,) = self.inside(test), test.arguments
        inside, after = head.branch(head.compare("ult", index, count))
        body(inside, index)
        following = inside.same_type("add", index, inside.constant(1, index.type))
        inside._end_block("llvm.br", [following], [test])
        return after

    # --- memory -----------------------------------------------------------------------------------------------------

    def pointer(self, address: ir.Value) -> ir.Value:
        """Emit an address, an ``index``, as a pointer."""
        return self.value("llvm.inttoptr", POINTER, self.value("arith.index_cast", "i64", address))

    def word(self, address: ir.Value, index: ir.Value) -> ir.Value:
        """Emit the address of element ``index``, an ``i64``, of the array of words at ``address``."""
        kind = {"elem_type": ir.TypeAttr.get(index.type, self.context), "rawConstantIndices": self.attribute(_DYNAMIC)}
        return self.op("llvm.getelementptr", [POINTER], [address, index], kind).result

    def on_stack(self, value: ir.Value) -> ir.Value:
        """Emit ``llvm.alloca`` of ``value``; return the pointer to it."""
        kind = {"elem_type": ir.TypeAttr.get(value.type, self.context)}
        address = self.op("llvm.alloca", [POINTER], [self.constant(1, "i64")], kind).result
        self.op("llvm.store", [], [value, address])
        return address

    def pack(self, values: Sequence[ir.Value]) -> ir.Value:
        """Emit a struct of ``values``."""
        struct = self.value("llvm.mlir.undef", self._struct([value.type for value in values]))
        for position, value in enumerate(values):
            at = {"position": self.array([position])}
            struct = self.op("llvm.insertvalue", [struct.type], [struct, value], at).result
        return struct

    def load_struct(self, address: ir.Value, types: Sequence[ir.Type]) -> list[ir.Value]:
        """Emit the members of the struct of ``types`` at ``address``."""
        struct = self.value("llvm.load", self._struct(types), address)
        return [
            self.op("llvm.extractvalue", [kind], [struct], {"position": self.array([position])}).result
            for position, kind in enumerate(types)
        ]

    def _struct(self, types: Sequence[ir.Type]) -> ir.Type:
        return self.type(f"!llvm.struct<({', '.join(map(str, types))})>")

    # --- arithmetic -------------------------------------------------------------------------------------------------

    def constant(self, value: float, type_: ir.Type | str) -> ir.Value:
        """Emit ``llvm.mlir.constant`` of a type of integers or floats."""
        kind = self.type(type_) if isinstance(type_, str) else type_
        if isinstance(kind, ir.IntegerType):
            number = ir.IntegerAttr.get(kind, int(value))
        else:
            number = ir.FloatAttr.get(kind, value, loc=self.location)
        return self.op("llvm.mlir.constant", [kind], (), {"value": number}).result

    def same_type(self, name: str, left: ir.Value, right: ir.Value) -> ir.Value:
        """Emit ``llvm.<name>`` of two operands, whose type the result has."""
        return self.value(f"llvm.{name}", left.type, left, right)

    def compare(self, predicate: str, left: ir.Value, right: ir.Value) -> ir.Value:
        """Emit ``llvm.icmp``; ``predicate`` is one of `CMPI`."""
        return self.op("llvm.icmp", ["i1"], [left, right], {"predicate": self.i64(CMPI[predicate])}).result


def function_hints(context: ir.Context, *hints: str | tuple[str, str]) -> ir.ArrayAttr:
    """Return function attributes of LLVM, each a name or a name and a value, for ``passthrough``."""
    settings = [
        ir.StringAttr.get(hint, context)
        if isinstance(hint, str)
        else ir.ArrayAttr.get([ir.StringAttr.get(part, context) for part in hint], context)
        for hint in hints
    ]
    return ir.ArrayAttr.get(settings, context)
