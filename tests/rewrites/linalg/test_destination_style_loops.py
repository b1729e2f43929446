"""Loops in destination style: one-shot bufferization takes them with its default options."""

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context, passmanager
from fx_importer.pipelines import run_text

T = "tensor<3xf32>"
CONSTANTS = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
"""


def copy_of(value: str) -> str:
    return f"linalg.exp ins({value} : {T}) outs(%e : {T}) -> {T}"


# Each swaps, or reads the old value of an argument after an update of it.
FORS = {
    "swap": ("%y, %x", ""),
    "update in place": (
        "%s, %y",
        "%v = tensor.extract %x[%i] : tensor<3xf32>\n%s = tensor.insert %v into %x[%c0] : tensor<3xf32>",
    ),
    "old value read later": (
        "%s, %r",
        f"%s = tensor.insert %f into %x[%i] : {T}\n%r = {copy_of('%x')}",
    ),
    "view of the old value read later": (
        "%s, %w",
        f"%v = tensor.extract_slice %x[0] [3] [1] : {T} to {T}\n%s = tensor.insert %f into %x[%i] : {T}"
        f"\n%w = {copy_of('%v')}",
    ),
    "old value read in a nested loop": (
        "%s, %y",
        f"""%s = scf.for %j = %c0 to %c3 step %c1 iter_args(%a = %x) -> ({T}) {{
              %v = tensor.extract %x[%i] : {T}
              %b = tensor.insert %v into %a[%j] : {T}
              scf.yield %b : {T} }}""",
    ),
    "outer value": ("%e0, %y", ""),
    "branch": ("%s, %y", f"%s = scf.if %p -> {T} {{ scf.yield %x : {T} }} else {{ scf.yield %y : {T} }}"),
}


def bufferized(text: str) -> tuple[str, str]:
    """Return a module in destination style, and in buffers."""
    context = new_context()
    load_dialects(context)
    module = ir.Module.parse(text, context)
    run_text("builtin.module(fx-importer-loops-to-destination-style)", module)
    module.operation.verify()
    before = str(module)
    with context:
        passmanager.PassManager.parse("builtin.module(one-shot-bufferize{bufferize-function-boundaries})").run(
            module.operation
        )
    return before, str(module)


@pytest.mark.parametrize("name", FORS)
def test_counted_loop(name):
    yielded, body = FORS[name]
    before, _ = bufferized(f"""
func.func @main(%x0: {T}, %y0: {T}, %f: f32, %p: i1) -> ({T}, {T}) {{
    {CONSTANTS}
    %e0 = tensor.empty() : {T}
    %r:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%x = %x0, %y = %y0) -> ({T}, {T}) {{
      %e = tensor.empty() : {T}
      {body}
      scf.yield {yielded} : {T}, {T}
    }}
    return %r#0, %r#1 : {T}, {T}
}}""")
    assert ("tensor<1x3xf32>" in before) == (name != "update in place")


@pytest.mark.parametrize("passed", ["%x, %i", "%i, %x", "%x", "%n, %x, %i"])
def test_condition_that_passes_on_arguments_in_another_order(passed):
    """Canonicalization makes such loops: it drops the arguments that the body does not read."""
    types = {"%x": T, "%i": "i32", "%n": "i64"}
    names = passed.split(", ")
    kinds = ", ".join(types[each] for each in names)
    arguments = ", ".join(f"{each}1: {types[each]}" for each in names)
    before, _ = bufferized(f"""
func.func @main(%x0: {T}, %i0: i32) -> ({kinds}) {{
    %c9 = arith.constant 9 : i32
    %r:{len(names)} = scf.while (%go = %c9, %i = %i0, %x = %x0) : (i32, i32, {T}) -> ({kinds}) {{
      %p = arith.cmpi slt, %i, %go : i32
      %n = arith.extsi %i : i32 to i64
      scf.condition(%p) {passed} : {kinds}
    }} do {{
    ^bb0({arguments}):
      %e = tensor.empty() : {T}
      %z = {copy_of("%x1")}
      %next = arith.constant 10 : i32
      scf.yield %c9, %next, %z : i32, i32, {T}
    }}
    return {", ".join(f"%r#{i}" for i in range(len(names)))} : {kinds}
}}""")
    assert "scf.while (%arg2 = %expanded" in before
