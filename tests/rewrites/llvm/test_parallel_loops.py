"""Which loops threads share."""

import pytest
import torch

from fx_importer import lower
from fx_importer.mlir.bindings import ir
from fx_importer.rewrites.llvm.parallel_loops import has_threads, loop_to_split

SUM = """
func.func @main(%given: memref<8x32x1024xf32>) {
  %none = arith.constant 0 : index
  %one = arith.constant 1 : index
  %images = arith.constant 8 : index
  %channels = arith.constant 32 : index
  %pixels = arith.constant 1024 : index
  %other = memref.alloc() : memref<8x32x1024xf32>
  %sum = MEMORY
  scf.for %i = %none to %images step %one {
    scf.parallel (%c) = (%none) to (%channels) step (%one) {
      scf.for %p = %none to %pixels step %one {
        %x = memref.load %READ[%i, %c, %p] : memref<8x32x1024xf32>
        %s = memref.load %sum[%none, %PLACE, %none] : memref<1x32x1xf32, strided<[32768, 1024, 1]>>
        %t = arith.addf %s, %x : f32
        memref.store %t, %sum[%none, %PLACE, %none] : memref<1x32x1xf32, strided<[32768, 1024, 1]>>
      }
      scf.reduce
    }
  }
  return
}"""
KIND = "memref<1x32x1xf32, strided<[32768, 1024, 1]>>"
OF_OTHER = f"memref.subview %other[0, 0, 0] [1, 32, 1] [1, 1, 1] : memref<8x32x1024xf32> to {KIND}"
CASES = {
    "channels": ({}, True),
    "place of another loop": ({"PLACE": "i"}, False),
    "memory that is read": ({"READ": "other"}, False),
    "memory of the caller": ({"MEMORY": OF_OTHER.replace("%other", "%given")}, False),
}


@pytest.mark.skipif(not has_threads(), reason="no OpenMP library with GCC's interface")
@pytest.mark.parametrize("name", CASES)
def test_a_loop_in_a_sum_is_shared_if_its_iterations_write_to_places_of_their_own(name):
    changed, is_shared = CASES[name]
    text = SUM
    for each, by in {"PLACE": "c", "READ": "given", "MEMORY": OF_OTHER, **changed}.items():
        text = text.replace(each, by)
    module = ir.Module.parse(text, ir.Context())
    (outer,) = (
        each.operation for each in module.body.operations[0].regions[0].blocks[0] if each.operation.name == "scf.for"
    )
    found = loop_to_split(outer)
    assert (found is not None) == is_shared
    if found is not None:
        assert (found.loop.name, found.number, found.bounds) == ("scf.parallel", 0, (0, 1))


def test_sums_by_channels_do_not_depend_on_the_number_of_threads():
    x = torch.randn(8, 40, 33, 35, generator=torch.Generator().manual_seed(0))
    caller = lower(lambda x: (x.sum((0, 2, 3)), torch.var(x, (0, 2, 3))), x, output_type="linalg-on-tensors").caller()
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(caller(x))
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(found[0], (x.sum((0, 2, 3)), x.var((0, 2, 3))), rtol=1e-5, atol=1e-3)
    assert all(torch.equal(a, b) for each in found[1:] for a, b in zip(each, found[0], strict=True))
