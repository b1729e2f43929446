"""Integers that are known at run time only, spelled in StableHLO."""

from __future__ import annotations

from itertools import groupby

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Emitter
from fx_importer.rewrites.stablehlo.dimension_sizes import Shape
from fx_importer.rewrites.stablehlo.size_polynomials import Atoms, Computed, Extent, Integer, Number

INTEGER = "tensor<i64>"


class IntegerEmitter(Emitter):
    """Emits StableHLO for integers and shapes. ``said`` holds what is there already, and can be read at the place."""

    def __init__(self, op: ir.Operation, atoms: Atoms, said: list[dict[Integer | Shape, ir.Value]]):
        super().__init__(ir.InsertionPoint(op), op.location)
        self._atoms = atoms
        self._said = said

    def stablehlo(self, name: str, result: ir.Type | str, *operands: ir.Value) -> ir.Value:
        """Emit StableHLO's ``name``, which has one result and no attributes, and return the result."""
        return self.value(f"stablehlo.{name}", result, *operands)

    def dense(self, text: str, type_: str) -> ir.Value:
        """Emit a constant."""
        value = ir.Attribute.parse(f"dense<{text}> : {type_}", self.context)
        return self.op("stablehlo.constant", [type_], (), {"value": value}).result

    def compare(self, direction: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """Emit a comparison of rank-0 tensors."""
        attribute = ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>", self.context)
        return self.op("stablehlo.compare", ["tensor<i1>"], (a, b), {"comparison_direction": attribute}).result

    def number(self, integer: Integer) -> ir.Value:
        """Emit ``integer`` as a ``tensor<i64>``."""
        return self._once(integer) or self._keep(integer, self._polynomial(integer))

    def shape(self, shape: Shape) -> ir.Value:
        """Emit ``shape`` as a one-dimensional tensor of 64-bit integers."""
        return self._once(shape) or self._keep(shape, self._vector(shape))

    def _once(self, key: Integer | Shape) -> ir.Value | None:
        return next((said[key] for said in self._said if key in said), None)

    def _keep(self, key: Integer | Shape, value: ir.Value) -> ir.Value:
        self._said[-1][key] = value
        return value

    def _vector(self, shape: Shape) -> ir.Value:
        pieces: list[ir.Value] = []
        for known, sizes in groupby(shape, lambda size: size.constant is not None):
            found = list(sizes)
            if known:
                text = ", ".join(str(size.constant) for size in found)
                pieces.append(self.dense(f"[{text}]", f"tensor<{len(found)}xi64>"))
            else:
                pieces += [self.stablehlo("reshape", "tensor<1xi64>", self.number(size)) for size in found]
        if not pieces:
            return self.dense("", "tensor<0xi64>")
        if len(pieces) == 1:
            return pieces[0]
        dimension = {"dimension": ir.IntegerAttr.get(ir.IntegerType.get_signless(64, self.context), 0)}
        return self.op("stablehlo.concatenate", [f"tensor<{len(shape)}xi64>"], pieces, dimension).result

    def _polynomial(self, integer: Integer) -> ir.Value:
        total: ir.Value | None = None
        for monomial, coefficient in integer.terms:
            term = None if monomial and coefficient == 1 else self.dense(str(coefficient), INTEGER)
            for number in monomial:
                factor = self._atom(number)
                term = factor if term is None else self.stablehlo("multiply", INTEGER, factor, term)
            assert term is not None
            total = term if total is None else self.stablehlo("add", INTEGER, total, term)
        return self.dense("0", INTEGER) if total is None else total

    def _atom(self, number: int) -> ir.Value:
        atom = self._atoms[number]
        key = self._atoms.integer(atom)
        return self._once(key) or self._keep(key, self._spelled(atom))

    def _spelled(self, atom: Extent | Number | Computed) -> ir.Value:
        if isinstance(atom, Number):
            return atom.value
        if isinstance(atom, Extent):
            axis = {"dimension": ir.IntegerAttr.get(ir.IntegerType.get_signless(64, self.context), atom.axis)}
            size = self.op("stablehlo.get_dimension_size", ["tensor<i32>"], [atom.value], axis).result
            return self.stablehlo("convert", INTEGER, size)
        a, b = (self.number(each) for each in atom.operands)
        if atom.name == "broadcast":
            return self.stablehlo("select", INTEGER, self.compare("EQ", a, self.dense("1", INTEGER)), b, a)
        return self.stablehlo(atom.name, INTEGER, a, b)
