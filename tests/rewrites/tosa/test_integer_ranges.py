"""Integer ranges of values of a TOSA module."""

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.mlir.emit.emitter import terminator
from fx_importer.rewrites.tosa.integer_ranges import Ranges, functions_of
from fx_importer.rewrites.tosa.intervals import INT32, Range, integers

I64 = integers(64)
CONSTANTS = """
  %shift = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zero = "tosa.const"() <{values = dense<0> : tensor<1xi64>}> : () -> tensor<1xi64>
  %five = "tosa.const"() <{values = dense<5> : tensor<1xi64>}> : () -> tensor<1xi64>
  %three = "tosa.const"() <{values = dense<-3> : tensor<1xi64>}> : () -> tensor<1xi64>
  %some = "tosa.const"() <{values = dense<[-2, 7]> : tensor<2xi64>}> : () -> tensor<2xi64>
"""
T, ONE = "tensor<2xi64>", "tensor<1xi64>"


def ranges_of(body: str, *, narrow: bool = False) -> Range | None:
    """Return the range of ``%r``; ``%x`` is an argument."""
    load_dialects(context := new_context())
    text = f"func.func @main(%x: {T}, %f: tensor<2xf32>) -> {T} {{ {CONSTANTS} {body}\n return %r : {T} }}"
    module = ir.Module.parse(text, context).operation
    found = Ranges(module, narrow=narrow)
    return found[terminator(functions_of(module)[0].regions[0].blocks[0]).operands[0]]


def binary(name: str, a: str, b: str) -> str:
    types = ", ".join(T if each in ("%x", "%some") else ONE for each in (a, b))
    return f"%r = tosa.{name} {a}, {b} : ({types}) -> {T}"


@pytest.mark.parametrize(
    "body, expected",
    [
        (binary("add", "%some", "%five"), Range(3, 12)),
        (binary("sub", "%some", "%five"), Range(-7, 2)),
        (binary("add", "%x", "%five"), I64),  # it may wrap around
        (f"%r = tosa.mul %some, %three, %shift : ({T}, {ONE}, tensor<1xi8>) -> {T}", Range(-21, 6)),
        (binary("minimum", "%x", "%five"), Range(I64.low, 5)),
        (binary("maximum", "%x", "%five"), Range(5, I64.high)),
        (binary("intdiv", "%some", "%three"), Range(-2, 0)),
        (binary("intdiv", "%some", "%some"), Range(-7, 7)),
        (binary("bitwise_and", "%x", "%five"), Range(0, 5)),
        (binary("bitwise_or", "%some", "%five"), Range(-8, 7)),
        (binary("logical_left_shift", "%some", "%five"), Range(-64, 224)),
        (f"%r = tosa.arithmetic_right_shift %some, %five {{round = false}} : ({T}, {ONE}) -> {T}", Range(-1, 0)),
        (f"%r = tosa.abs %some : ({T}) -> {T}", Range(0, 7)),
        (f"%r = tosa.bitwise_not %some : ({T}) -> {T}", Range(-8, 1)),
        (f"%i = tosa.cast %x : ({T}) -> tensor<2xi32> %r = tosa.cast %i : (tensor<2xi32>) -> {T}", INT32),
        (f"%i = tosa.cast %x : ({T}) -> tensor<2xi1> %r = tosa.cast %i : (tensor<2xi1>) -> {T}", Range(0, 1)),
        (f"%r = tosa.cast %f : (tensor<2xf32>) -> {T}", I64),
        (f"%t = tosa.tanh %f : (tensor<2xf32>) -> tensor<2xf32> %r = tosa.cast %t : (tensor<2xf32>) -> {T}", None),
        (
            f"""%q = tosa.intdiv %x, %five : ({T}, {ONE}) -> {T}
            %m = tosa.mul %q, %five, %shift : ({T}, {ONE}, tensor<1xi8>) -> {T}
            %r = tosa.sub %x, %m : ({T}, {T}) -> {T}""",
            Range(-4, 4),
        ),
    ],
)
def test_rules(body: str, expected: Range | None) -> None:
    found = ranges_of(body)
    assert found == (expected or I64)  # NaN may be cast to any value


LOOP = """
%n, %r = tosa.while_loop (%i = %zero, %y = %some) : (tensor<1xi64>, tensor<2xi64>) -> (tensor<1xi64>, tensor<2xi64>) {{
  %b = tosa.greater %five, %i : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi1>
  %e = tosa.const_shape {{values = dense<> : tensor<0xindex>}} : () -> !tosa.shape<0>
  %c = tosa.reshape %b, %e : (tensor<1xi1>, !tosa.shape<0>) -> tensor<i1>
  tosa.yield %c : tensor<i1>
}} do {{
^bb0(%i: tensor<1xi64>, %y: tensor<2xi64>):
  %one = "tosa.const"() <{{values = dense<1> : tensor<1xi64>}}> : () -> tensor<1xi64>
  %j = tosa.add %i, %one : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi64>
  %z = {body} : (tensor<2xi64>, tensor<1xi64>) -> tensor<2xi64>
  tosa.yield %j, %z : tensor<1xi64>, tensor<2xi64>
}}
"""


@pytest.mark.parametrize(
    "body, expected",
    [
        ("tosa.maximum %y, %j", Range(-2, 7)),
        ("tosa.add %y, %one", I64),  # the analysis does not know the trip count
        ("tosa.minimum %y, %one", Range(-2, 7)),
    ],
)
def test_loops(body: str, expected: Range) -> None:
    assert ranges_of(LOOP.format(body=body)) == expected


def test_results_of_an_overflow_are_assumed_to_fit() -> None:
    body = f"{binary('add', '%x', '%five').replace('%r', '%s')} %r = tosa.add %s, %five : ({T}, {ONE}) -> {T}"
    load_dialects(context := new_context())
    text = f"func.func @main(%x: {T}) -> {T} {{ {CONSTANTS} {body}\n return %r : {T} }}"
    module = ir.Module.parse(text, context).operation
    outside = Ranges(module, narrow=True).outside
    assert list(outside.values()) == [Range(INT32.low + 5, INT32.high + 5), Range(INT32.low + 10, INT32.high + 5)]
