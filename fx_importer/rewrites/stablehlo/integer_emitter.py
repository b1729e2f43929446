"""Emit symbolic integers and shapes in StableHLO."""

from __future__ import annotations

from itertools import groupby
from typing import Protocol

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.rewrites.stablehlo.dimension_sizes import DimensionSizes, Shape
from fx_importer.rewrites.stablehlo.scalar_values import ScalarValues
from fx_importer.symbolic.polynomials import Atoms, Computed, DimensionSize, Polynomial, ScalarTensor

INTEGER = "tensor<i64>"


class IntegerEmitter(StablehloOps):
    """Emits integers and shapes, each once for all uses that its value dominates.

    ``emitted`` has the values emitted so far, in one scope per block around the insertion point, innermost last.
    """

    def __init__(self, op: ir.Operation, atoms: Atoms, emitted: list[dict[Polynomial | Shape, ir.Value]]):
        super().__init__(ir.InsertionPoint(op), op.location)
        self._atoms = atoms
        self._emitted = emitted

    def number(self, integer: Polynomial) -> ir.Value:
        """Return ``integer`` as a ``tensor<i64>``."""
        return self._lookup(integer) or self._keep(integer, self._polynomial(integer))

    def shape_tensor(self, shape: Shape) -> ir.Value:
        """Return ``shape`` as a 1-D tensor of i64."""
        return self._lookup(shape) or self._keep(shape, self._vector(shape))

    def _lookup(self, key: Polynomial | Shape) -> ir.Value | None:
        return next((scope[key] for scope in self._emitted if key in scope), None)

    def _keep(self, key: Polynomial | Shape, value: ir.Value) -> ir.Value:
        self._emitted[-1][key] = value
        return value

    def _vector(self, shape: Shape) -> ir.Value:
        pieces: list[ir.Value] = []
        for known, sizes in groupby(shape, lambda size: size.constant is not None):
            numbers = list(sizes)
            if known:
                text = ", ".join(str(size.constant) for size in numbers)
                pieces.append(self.dense_constant(f"[{text}]", f"tensor<{len(numbers)}xi64>"))
            else:
                pieces += [self.stablehlo("reshape", "tensor<1xi64>", self.number(size)) for size in numbers]
        if not pieces:
            return self.dense_constant("", "tensor<0xi64>")
        if len(pieces) == 1:
            return pieces[0]
        return self.concatenate(pieces, 0, f"tensor<{len(shape)}xi64>")

    def _polynomial(self, integer: Polynomial) -> ir.Value:
        total: ir.Value | None = None
        for monomial, coefficient in integer.terms:
            term = None if monomial and coefficient == 1 else self.dense_constant(str(coefficient), INTEGER)
            for index in monomial:
                factor = self._atom(index)
                term = factor if term is None else self.stablehlo("multiply", INTEGER, factor, term)
            assert term is not None
            total = term if total is None else self.stablehlo("add", INTEGER, total, term)
        return self.dense_constant("0", INTEGER) if total is None else total

    def _atom(self, index: int) -> ir.Value:
        atom = self._atoms[index]
        key = self._atoms.polynomial(atom)
        return self._lookup(key) or self._keep(key, self._emit_atom(atom))

    def _emit_atom(self, atom: DimensionSize | ScalarTensor | Computed) -> ir.Value:
        if isinstance(atom, ScalarTensor):
            return atom.value
        if isinstance(atom, DimensionSize):
            return self.stablehlo("convert", INTEGER, self.dimension_size(atom.value, atom.axis))
        a, b = (self.number(operand) for operand in atom.operands)
        if atom.name == "broadcast":
            return self.stablehlo("select", INTEGER, self.compare("EQ", a, self.dense_constant("1", INTEGER)), b, a)
        return self.stablehlo(atom.name, INTEGER, a, b)


class FunctionValues(Protocol):
    """Facts about the values of a function while it is rewritten."""

    integers: dict[ir.Value, Polynomial]
    """The values of type ``index`` and ``i64``."""
    scalars: ScalarValues
    sizes: DimensionSizes
    atoms: Atoms

    def tensor(self, value: ir.Value, emit: IntegerEmitter) -> ir.Value | None:
        """Return the tensor that replaces ``value``; None if ``value`` stays."""
        ...

    def set_scalar(self, value: ir.Value, tensor: ir.Value) -> None:
        """Record that the rank-0 ``tensor`` replaces ``value``."""
        ...

    def replace(self, value: ir.Value, tensor: ir.Value, integer: Polynomial | None = None) -> None:
        """Replace the tensor ``value`` by ``tensor``; ``integer`` is its one element, if it is known."""
        ...
