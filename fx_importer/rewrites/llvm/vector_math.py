"""Functions of float32 as arithmetic, which LLVM vectorizes: it cannot vectorize calls of the C library.

Errors are below 2.5 units in the last place. The coefficients of tanh and erf are minimax fits by Lawson's algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import Emitter, replace
from fx_importer.mlir.emit.llvm import function_hints
from fx_importer.mlir.functions import body_of
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.llvm.processor import processor_of

_PREFIX = "fx_importer_vector_"


@rewrite("fx-importer-replace-math-functions")
def replace_functions(module: ir.Operation) -> None:
    """Replace the functions of float32 in the kernels of ``module`` by calls of functions that it declares.

    Functions of 16-bit floats are computed in float32 and rounded, as `math-extend-to-supported-types` would have it.
    """
    used: set[str] = set()
    for function in body_of(module):
        if not isinstance(function, func_d.FuncOp) or not _is_optimized(function):
            continue
        for op in operations(function.operation, FUNCTIONS):
            kind = op.results[0].type
            if isinstance(kind, ir.F32Type | ir.F16Type | ir.BF16Type):
                name = _PREFIX + op.name.removeprefix("math.")
                used.add(op.name)
                emit, is_wide = Emitter.before(op), isinstance(kind, ir.F32Type)
                operands = op.operands if is_wide else [emit.value("arith.extf", "f32", op.operands[0])]
                result = emit.call_function(name, ["f32"], operands).result
                replace(op, result if is_wide else emit.value("arith.truncf", kind, result))
    with module.context, ir.Location.unknown():
        kind = ir.FunctionType.get([ir.F32Type.get()], [ir.F32Type.get()])
        for name in sorted(used):
            with ir.InsertionPoint(body_of(module)):
                func_d.FuncOp(_PREFIX + name.removeprefix("math."), kind, visibility="private")


@rewrite("fx-importer-define-math-functions")
def define_functions(module: ir.Operation) -> None:
    """Define the functions that `replace_functions` declared, after the conversion of math to the C library."""
    for function in body_of(module):
        name = function.name.value if isinstance(function, func_d.FuncOp) else ""
        if isinstance(function, func_d.FuncOp) and name.startswith(_PREFIX):
            function.attributes["llvm.passthrough"] = function_hints(module.context, "alwaysinline")
            emit = VectorOps.before(function.operation)
            block = emit.add_block(function.body, function.type.inputs)
            inside = emit.inside(block)
            result = FUNCTIONS[f"math.{name.removeprefix(_PREFIX)}"](inside, block.arguments[0])
            inside.op("func.return", [], [result])


def _is_optimized(function: func_d.FuncOp) -> bool:
    return "llvm.passthrough" in function.attributes and "optnone" not in str(function.attributes["llvm.passthrough"])


Float: TypeAlias = "float | ir.Value"
Integer: TypeAlias = "int | ir.Value"
_TANH_NEAR = (-0.33333284, 0.1333149, -0.053743497, 0.020650579, -0.005717037)
_ERF_NEAR = (1.1283792, -0.37612638, 0.11283782, -0.0268654, 0.0052209455, -0.00084828289, 0.00011256948, -9.641516e-06)
_ERF_FAR = (
    *(0.00018804023, -1.1295785, -0.6332199, -0.10841858),
    *(0.025208257, -0.0042045619, 0.00044133637, -2.168685e-05),
)


class VectorOps(ArithOps):
    """Emits functions of a float32. Numbers are taken wherever an f32 or an i32 is."""

    def exp(self, x: ir.Value) -> ir.Value:
        """Emit the exponential. The power of 2 is a product of two: one may be out of range."""
        fraction, n = self._split_exp(self._larger(self._smaller(x, 89.0), -105.0))
        half = self._integer("shrsi", n, 1)
        rest = self._integer("subi", n, half)
        scaled = self._mul(self._mul(fraction, self._power_of_two(half)), self._power_of_two(rest))
        return self.select_value(self.compare_floats("uno", x, x), x, scaled)

    def tanh(self, x: ir.Value) -> ir.Value:
        """Emit the hyperbolic tangent: from 0.625 on, it is 1 - 2 / (exp(2x) + 1)."""
        square = self._mul(x, x)
        near = self._mul(x, self._fma(square, self._polynomial(square, _TANH_NEAR), 1.0))
        magnitude = self.value("math.absf", "f32", x)
        bounded = self._smaller(magnitude, 10.0)
        power = self._bounded_exp(self._add(bounded, bounded))
        far = self._sub(1.0, self.value("arith.divf", "f32", self._f32(2.0), self._f32(self._add(power, 1.0))))
        return self._near_or_far(x, magnitude, 0.625, near, far)

    def erf(self, x: ir.Value) -> ir.Value:
        """Emit the error function: from 1 on, it is 1 - exp(P(x)) with a fit of log(erfc(x))."""
        magnitude = self.value("math.absf", "f32", x)
        near = self._mul(x, self._polynomial(self._mul(x, x), _ERF_NEAR))
        power = self._bounded_exp(self._polynomial(self._smaller(magnitude, 4.0), _ERF_FAR))
        return self._near_or_far(x, magnitude, 1.0, near, self._sub(1.0, power))

    def _near_or_far(self, x: ir.Value, magnitude: ir.Value, border: float, near: ir.Value, far: ir.Value) -> ir.Value:
        """Emit ``near`` below ``border``, and for NaN, else ``far`` with the sign of ``x``."""
        signed = self.value("math.copysign", "f32", far, x)
        return self.select_value(self.compare_floats("ult", magnitude, self._f32(border)), near, signed)

    def _bounded_exp(self, x: ir.Value) -> ir.Value:
        """Emit the exponential where neither the power of 2 nor the result are subnormal or infinite."""
        fraction, n = self._split_exp(x)
        return self._mul(fraction, self._power_of_two(n))

    def _split_exp(self, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return exp(r) and n of exp(x) = exp(r) 2^n: n is the nearest integer to x / ln(2), which has two parts."""
        n = self.value("math.roundeven", "f32", self._mul(x, 1.4426950408889634))
        r = self._fma(n, -1.4286068203094172e-6, self._fma(n, -0.693145751953125, x))
        fraction = self._polynomial(r, [1.0, 1.0, 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040])
        return fraction, self.value("arith.fptosi", "i32", n)

    def _power_of_two(self, n: ir.Value) -> ir.Value:
        """Emit 2^n by its exponent."""
        bits = self._integer("shli", self._integer("addi", n, 127), 23)
        return self.value("arith.bitcast", "f32", bits)

    def _polynomial(self, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
        """Emit the polynomial of ``x`` with ``coefficients``, the constant first."""
        *rest, last = coefficients
        value: Float = last
        for coefficient in reversed(rest):
            value = self._fma(value, x, coefficient)
        return self._f32(value)

    def _smaller(self, x: ir.Value, bound: float) -> ir.Value:
        """Emit the smaller number; ``bound`` for NaN."""
        return self.select_value(self.compare_floats("olt", x, self._f32(bound)), x, self._f32(bound))

    def _larger(self, x: ir.Value, bound: float) -> ir.Value:
        return self.select_value(self.compare_floats("ogt", x, self._f32(bound)), x, self._f32(bound))

    def _fma(self, a: Float, b: Float, c: Float) -> ir.Value:
        """Emit ``a * b + c``, rounded once where the processor has an instruction: libm's function takes long."""
        if (processor := processor_of(self)) is not None and not processor.fma:
            return self._add(self._mul(a, b), c)
        return self.value("math.fma", "f32", *map(self._f32, (a, b, c)))

    def _add(self, a: Float, b: Float) -> ir.Value:
        return self.value("arith.addf", "f32", self._f32(a), self._f32(b))

    def _sub(self, a: Float, b: Float) -> ir.Value:
        return self.value("arith.subf", "f32", self._f32(a), self._f32(b))

    def _mul(self, a: Float, b: Float) -> ir.Value:
        return self.value("arith.mulf", "f32", self._f32(a), self._f32(b))

    def _integer(self, name: str, a: Integer, b: Integer) -> ir.Value:
        return self.value(f"arith.{name}", "i32", self._i32(a), self._i32(b))

    def _f32(self, value: Float) -> ir.Value:
        return value if isinstance(value, ir.Value) else self.constant_scalar(value, self.type("f32"))

    def _i32(self, value: Integer) -> ir.Value:
        return value if isinstance(value, ir.Value) else self.constant_scalar(value, self.type("i32"))


FUNCTIONS: dict[str, Callable[[VectorOps, ir.Value], ir.Value]] = {
    "math.exp": VectorOps.exp,
    "math.tanh": VectorOps.tanh,
    "math.erf": VectorOps.erf,
}
"""What computes each function. An iteration with one takes much longer than other arithmetic."""
