"""Empty tensors that operations share."""

from fx_importer.mlir.bindings import ir, new_context
from fx_importer.mlir.walk import operations
from fx_importer.rewrites.llvm.empty_tensors import separate_empty_tensors

MODULE = """
func.func @main(%x: f32, %n: index) -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %empty = tensor.empty(%n) : tensor<?xf32>
  %a = linalg.fill ins(%x : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %b = linalg.fill ins(%x : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %c = scf.for %i = %zero to %n step %one iter_args(%last = %a) -> tensor<?xf32> {
    %d = linalg.fill ins(%x : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
    scf.yield %d : tensor<?xf32>
  }
  return %a, %b, %c : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
}
"""


def test_operations_of_one_block_share_none():
    module = ir.Module.parse(MODULE, new_context())
    separate_empty_tensors(module.operation)
    assert module.operation.verify()
    fills = operations(module.operation, ("linalg.fill",))
    inside = [op.operands[1] for op in fills if op.parent.name == "scf.for"]
    outside = [op.operands[1] for op in fills if op.parent.name == "func.func"]
    assert len(set(outside)) == len(outside) == 2
    assert [each.owner.parent.name for each in inside] == ["func.func"]
