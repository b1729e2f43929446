"""Memory of functions that allocate none."""

import pytest

from fx_importer import UsageError
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.rewrites.llvm.entry_point import read_fact
from fx_importer.rewrites.native.destinations import DESTINATIONS, return_by_destination
from fx_importer.rewrites.native.memory_plan import ARENA, ARENA_BYTES, DIMENSIONS, plan_memory

_WEIGHTS = "%weights: memref<?xi8>"


def _planned(text: str) -> ir.Module:
    context = new_context()
    load_dialects(context)
    module = ir.Module.parse(text, context)
    return_by_destination(module.operation)
    plan_memory(module.operation)
    assert module.operation.verify()
    assert "memref.alloc" not in str(module)
    return module


_CHAIN = """
func.func @main(%x: memref<64xf32>, WEIGHTS) -> memref<64xf32> {
  %a = memref.alloc() : memref<64xf32>
  memref.copy %x, %a : memref<64xf32> to memref<64xf32>
  %b = memref.alloc() : memref<64xf32>
  memref.copy %a, %b : memref<64xf32> to memref<64xf32>
  %c = memref.alloc() : memref<64xf32>
  memref.copy %b, %c : memref<64xf32> to memref<64xf32>
  %d = memref.alloc() : memref<64xf32>
  memref.copy %c, %d : memref<64xf32> to memref<64xf32>
  return %d : memref<64xf32>
}""".replace("WEIGHTS", _WEIGHTS)


def test_buffers_share_memory_and_results_have_their_own():
    module = _planned(_CHAIN)
    assert read_fact(module, ARENA) == 2 * 256
    assert read_fact(module, DESTINATIONS) == (2,)
    assert ", %arg2 : memref<64xf32> to memref<64xf32>\n    return\n" in str(module)


_LOOP = """
func.func @main(%x: memref<64xf32>, WEIGHTS) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %ten = arith.constant 10 : index
  %a = memref.alloc() : memref<64xf32>
  scf.for %i = %zero to %ten step %one {
    %b = memref.alloc() : memref<64xf32>
    memref.copy %x, %b : memref<64xf32> to memref<64xf32>
    memref.copy %b, %x : memref<64xf32> to memref<64xf32>
    memref.copy %a, %x : memref<64xf32> to memref<64xf32>
    %c = memref.alloc() : memref<64xf32>
    memref.copy %x, %c : memref<64xf32> to memref<64xf32>
  }
  return
}""".replace("WEIGHTS", _WEIGHTS)


def test_memory_before_a_loop_is_in_use_in_all_of_it():
    """A buffer of the next iteration reads what is before the loop; the buffers of one iteration share."""
    assert read_fact(_planned(_LOOP), ARENA) == 2 * 256


_DYNAMIC = """
func.func @main(%x: memref<?x4xf32>, WEIGHTS) -> memref<?xf32> {
  %zero = arith.constant 0 : index
  %two = arith.constant 2 : index
  %n = memref.dim %x, %zero : memref<?x4xf32>
  %m = arith.muli %n, %two : index
  %a = memref.alloc(%m) : memref<?x4xf32>
  %b = memref.alloc() : memref<4xf32>
  %c = memref.alloc(%n) : memref<?xf32>
  return %c : memref<?xf32>
}""".replace("WEIGHTS", _WEIGHTS)


def test_arena_of_dynamic_sizes_is_a_function():
    module = _planned(_DYNAMIC)
    assert read_fact(module, ARENA) == 64
    assert read_fact(module, DIMENSIONS) == ((0, 0),)
    assert f"func.func private @{ARENA_BYTES}(%arg0: index) -> index" in str(module)


_SIZE = "%n = memref.dim %x, %zero : memref<?x4xf32>"
_VALUE = """
  %i = memref.load %x[%zero, %zero] : memref<?x4xf32>
  %j = arith.fptosi %i : f32 to i64
  %n = arith.index_cast %j : i64 to index
"""


def test_sizes_of_values_are_refused():
    with pytest.raises(UsageError, match="a buffer's size is not known before the call: it is computed by memref.load"):
        _planned(_DYNAMIC.replace(_SIZE, _VALUE))


_SWAP = """
func.func @main(%a: memref<4xf32> {fx_importer.state = "a"}, %b: memref<4xf32> {fx_importer.state = "b"}, WEIGHTS)
    -> (memref<4xf32> {fx_importer.state = "a"}, memref<4xf32> {fx_importer.state = "b"}) {
  return %b, %a : memref<4xf32>, memref<4xf32>
}""".replace("WEIGHTS", _WEIGHTS)


def test_state_that_is_exchanged_is_copied_first():
    module = _planned(_SWAP)
    assert read_fact(module, DESTINATIONS) == (0, 1)
    assert str(module).count("memref.copy") == 4
