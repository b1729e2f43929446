"""Functions of float32 as arithmetic, which LLVM vectorizes: it cannot vectorize calls of the C library.

Errors are below 2.5 units in the last place. The coefficients of tanh and erf are minimax fits by Lawson's algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit import Emitter, replace
from fx_importer.mlir.walk import operations

_PREFIX = "fx_importer_vector_"


def replace_functions(module: ir.Module) -> None:
    """Replace the functions of float32 in the large kernels of ``module`` by calls of functions that it declares."""
    used: set[str] = set()
    for function in module.body:
        if not isinstance(function, func_d.FuncOp) or not _is_large(function):
            continue
        for op in operations(function.operation, _FUNCTIONS):
            if isinstance(op.results[0].type, ir.F32Type):
                name = _PREFIX + op.name.removeprefix("math.")
                callee = {"callee": ir.FlatSymbolRefAttr.get(name, op.context)}
                used.add(op.name)
                replace(op, Emitter.before(op).op("func.call", ["f32"], op.operands, callee).result)
    with module.context, ir.Location.unknown():
        kind = ir.FunctionType.get([ir.F32Type.get()], [ir.F32Type.get()])
        for name in sorted(used):
            with ir.InsertionPoint(module.body):
                func_d.FuncOp(_PREFIX + name.removeprefix("math."), kind, visibility="private")


def define_functions(module: ir.Module) -> None:
    """Define the functions that `replace_functions` declared, after the conversion of math to the C library."""
    for function in list(module.body):
        name = function.name.value if isinstance(function, func_d.FuncOp) else ""
        if name.startswith(_PREFIX):
            parsed = ir.Module.parse(_FUNCTIONS[f"math.{name.removeprefix(_PREFIX)}"], module.context)
            function.operation.erase()
            module.body.append(parsed.body.operations[0].clone())


def _is_large(function: func_d.FuncOp) -> bool:
    hints = str(function.attributes["llvm.passthrough"]) if "llvm.passthrough" in function.attributes else "optnone"
    return "optsize" not in hints and "optnone" not in hints


def _horner(x: str, coefficients: Sequence[float], name: str) -> str:
    """Return the polynomial of ``x`` with ``coefficients``, the constant first, as the value ``%name``."""
    lines = [f"%{name}_k{i} = arith.constant {each!r} : f32" for i, each in enumerate(coefficients)]
    last = len(coefficients) - 1
    before = f"%{name}_k{last}"
    for i in range(last - 1, -1, -1):
        value = f"%{name}" if i == 0 else f"%{name}_{i}"
        lines.append(f"{value} = math.fma {before}, {x}, %{name}_k{i} : f32")
        before = value
    return "\n  ".join(lines)


def _function(name: str, body: str) -> str:
    return f"""
func.func private @{_PREFIX}{name}(%x: f32) -> f32 attributes {{llvm.passthrough = ["alwaysinline"]}} {{
  {body}
}}
"""


# exp(x) = 2^n exp(r): n is the nearest integer to x / ln(2), and ln(2) has two parts.
_EXP_OF_BOUNDED = f"""%inverse = arith.constant {1.4426950408889634} : f32
  %quotient = arith.mulf %bounded, %inverse : f32
  %n = math.roundeven %quotient : f32
  %ln2 = arith.constant -0.693145751953125 : f32
  %ln2_rest = arith.constant -1.4286068203094172e-6 : f32
  %r0 = math.fma %n, %ln2, %bounded : f32
  %r = math.fma %n, %ln2_rest, %r0 : f32
  {_horner("%r", [1.0, 1.0, 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040], "e")}
  %bias = arith.constant 127 : i32
  %mantissa = arith.constant 23 : i32
  %integer = arith.fptosi %n : f32 to i32"""
# Neither 2^n nor the result are subnormal here.
_SCALED = f"""{_EXP_OF_BOUNDED}
  %exponent = arith.addi %integer, %bias : i32
  %bits = arith.shli %exponent, %mantissa : i32
  %scale = arith.bitcast %bits : i32 to f32
  %exp = arith.mulf %e, %scale : f32"""
_EXP = _function(
    "exp",
    f"""%largest = arith.constant 89.0 : f32
  %smallest = arith.constant -105.0 : f32
  %below = arith.cmpf olt, %x, %largest : f32
  %lower = arith.select %below, %x, %largest : f32
  %above = arith.cmpf ogt, %lower, %smallest : f32
  %bounded = arith.select %above, %lower, %smallest : f32
  {_EXP_OF_BOUNDED}
  %one = arith.constant 1 : i32
  %half = arith.shrsi %integer, %one : i32
  %other = arith.subi %integer, %half : i32
  %e0 = arith.addi %half, %bias : i32
  %e1 = arith.addi %other, %bias : i32
  %b0 = arith.shli %e0, %mantissa : i32
  %b1 = arith.shli %e1, %mantissa : i32
  %s0 = arith.bitcast %b0 : i32 to f32
  %s1 = arith.bitcast %b1 : i32 to f32
  %scaled = arith.mulf %e, %s0 : f32
  %result = arith.mulf %scaled, %s1 : f32
  %nan = arith.cmpf uno, %x, %x : f32
  %exact = arith.select %nan, %x, %result : f32
  return %exact : f32""",
)
_TANH = _function(
    "tanh",
    f"""%z = arith.mulf %x, %x : f32
  {_horner("%z", [-0.33333284, 0.1333149, -0.053743497, 0.020650579, -0.005717037], "p")}
  %unit = arith.constant 1.0 : f32
  %ratio = math.fma %z, %p, %unit : f32
  %near = arith.mulf %x, %ratio : f32
  %a = math.absf %x : f32
  %end = arith.constant 10.0 : f32
  %within = arith.cmpf olt, %a, %end : f32
  %least = arith.select %within, %a, %end : f32
  %bounded = arith.addf %least, %least : f32
  {_SCALED}
  %one = arith.constant 1.0 : f32
  %two = arith.constant 2.0 : f32
  %sum = arith.addf %exp, %one : f32
  %rest = arith.divf %two, %sum : f32
  %positive = arith.subf %one, %rest : f32
  %far = math.copysign %positive, %x : f32
  %border = arith.constant 0.625 : f32
  %small = arith.cmpf ult, %a, %border : f32
  %result = arith.select %small, %near, %far : f32
  return %result : f32""",
)
# From 1 on, erf(x) = 1 - exp(P(x)) with a fit of log(erfc(x)).
_ERF_NEAR = (1.1283792, -0.37612638, 0.11283782, -0.0268654, 0.0052209455, -0.00084828289, 0.00011256948, -9.641516e-06)
_ERF_FAR = (
    0.00018804023,
    -1.1295785,
    -0.6332199,
    -0.10841858,
    0.025208257,
    -0.0042045619,
    0.00044133637,
    -2.168685e-05,
)
_ERF = _function(
    "erf",
    f"""%a = math.absf %x : f32
  %z = arith.mulf %x, %x : f32
  {_horner("%z", _ERF_NEAR, "p")}
  %near = arith.mulf %x, %p : f32
  %border = arith.constant 1.0 : f32
  %end = arith.constant 4.0 : f32
  %within = arith.cmpf olt, %a, %end : f32
  %least = arith.select %within, %a, %end : f32
  {_horner("%least", _ERF_FAR, "bounded")}
  {_SCALED}
  %positive = arith.subf %border, %exp : f32
  %far = math.copysign %positive, %x : f32
  %small = arith.cmpf ult, %a, %border : f32
  %result = arith.select %small, %near, %far : f32
  return %result : f32""",
)
_FUNCTIONS = {"math.exp": _EXP, "math.tanh": _TANH, "math.erf": _ERF}
"""A module with the function for each operation."""
