"""Errors that would abort the process are exceptions."""

import pytest
import torch
from torch.export import Dim

from fx_importer import lower
from fx_importer.errors import UsageError
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.module_contents import copy_module
from fx_importer.mlir.walk import operations
from fx_importer.pipelines.llvm import LLVM
from fx_importer.pipelines.runner import run_stage

ASSERTION = """
func.func @main(%a: tensor<3xf32>, %b: i1, %c: i1) -> tensor<3xf32> {
  cf.assert %b, "the first"
  cf.assert %c, "the second" loc("user.py":12:3)
  return %a : tensor<3xf32>
}
"""


def test_failed_assertion_is_an_error_and_the_next_call_works(jit):
    function = jit(ASSERTION)
    for _ in range(3):
        with pytest.raises(UsageError, match=r"^'main' stopped: the first"):
            function(torch.ones(3), False, False)
        with pytest.raises(UsageError, match=r"^'main' stopped: the second \(at user.py:12\)$"):
            function(torch.ones(3), True, False)
        assert function(torch.ones(3), True, True)[0].tolist() == [1, 1, 1]


ELEMENTWISE = """
#map = affine_map<(i) -> (i)>
func.func @main(%a: tensor<?x{t}>, %b: tensor<?x{t}>) -> tensor<?x{t}> {{
  %c0 = arith.constant 0 : index
  %n = tensor.dim %a, %c0 : tensor<?x{t}>
  %e = tensor.empty(%n) : tensor<?x{t}>
  %r = linalg.generic {{indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]}}
    ins(%a, %b : tensor<?x{t}>, tensor<?x{t}>) outs(%e : tensor<?x{t}>) {{
  ^bb0(%x: {t}, %y: {t}, %z: {t}):
    {body}
    linalg.yield %s : {t}
  }} -> tensor<?x{t}>
  return %r : tensor<?x{t}>
}}
"""


@pytest.mark.slow_rows(
    r"^torch\.int32-ceildivui$",
    r"^torch\.int32-ceildivsi$",
    r"^torch\.int32-divui$",
    r"^torch\.int64-remsi$",
    r"^torch\.int64-ceildivsi$",
    r"^torch\.int8-remui$",
    r"^torch\.int8-ceildivui$",
    r"^torch\.int8-ceildivsi$",
    r"^torch\.int64-floordivsi$",
    r"^torch\.int8-divsi$",
    r"^torch\.int8-remsi$",
    r"^torch\.int32-remui$",
    r"^torch\.int32-divsi$",
)
@pytest.mark.parametrize("op", ["divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64], ids=str)
def test_division_by_zero(jit, op, dtype):
    t = f"i{dtype.itemsize * 8}"
    function = jit(ELEMENTWISE.format(t=t, body=f"%s = arith.{op} %x, %y : {t}"))
    numbers = torch.tensor([7, 6, 5], dtype=dtype)
    with pytest.raises(UsageError, match="integer division by zero"):
        function(numbers, torch.tensor([1, 0, 1], dtype=dtype))
    expected = numbers % 2 if "rem" in op else (numbers + 1) // 2 if "ceil" in op else numbers // 2
    assert torch.equal(function(numbers, torch.full((3,), 2, dtype=dtype))[0], expected)


def test_division_by_a_constant_is_not_checked(jit):
    body = "%c = arith.constant 2 : i32\n %s = arith.divsi %x, %c : i32"
    function = jit(ELEMENTWISE.format(t="i32", body=body))
    assert not [message for message in function.messages if "division" in message]


def test_mismatched_sizes(jit):
    function = jit(ELEMENTWISE.format(t="f32", body="%s = arith.addf %x, %y : f32"))
    assert function(torch.ones(2), torch.ones(2))[0].tolist() == [2, 2]
    with pytest.raises(
        UsageError, match="'main' stopped: the program is inconsistent, dimension #0 of input/output operand"
    ):
        function(torch.ones(3), torch.ones(2))


GATHER = """
#map = affine_map<(i) -> (i)>
func.func @main(%table: tensor<{n}xf32>, %where: tensor<2xi64>) -> tensor<2xf32> {{
  %e = tensor.empty() : tensor<2xf32>
  %r = linalg.generic {{indexing_maps = [#map, #map], iterator_types = ["parallel"]}}
    ins(%where : tensor<2xi64>) outs(%e : tensor<2xf32>) {{
  ^bb0(%x: i64, %z: f32):
    %i = arith.index_cast %x : i64 to index
    %s = tensor.extract %table[%i] : tensor<{n}xf32>
    linalg.yield %s : f32
  }} -> tensor<2xf32>
  return %r : tensor<2xf32>
}}
"""


@pytest.mark.parametrize("size", ["5", "?"])
def test_index_out_of_range(jit, size):
    function = jit(GATHER.format(n=size))
    table = torch.arange(5.0)
    assert function(table, torch.tensor([4, 0]))[0].tolist() == [4, 0]
    for wrong in (5, -1, 2**40):
        with pytest.raises(
            UsageError, match=rf"an index is out of range for a tensor of shape \[{size.replace('?', '.')}\]"
        ):
            function(table, torch.tensor([0, wrong]))


SCATTER = """
func.func @main(%out: tensor<4xf32>, %updates: tensor<2xf32>, %where: tensor<2x1xi32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %r = scf.for %u = %c0 to %c2 step %c1 iter_args(%t = %out) -> tensor<4xf32> {
    %w = tensor.extract %where[%u, %c0] : tensor<2x1xi32>
    %i = arith.index_cast %w : i32 to index
    %x = tensor.extract %updates[%u] : tensor<2xf32>
    %y = tensor.extract %t[%i] : tensor<4xf32>
    %s = arith.addf %x, %y : f32
    %n = tensor.insert %s into %t[%i] : tensor<4xf32>
    scf.yield %n : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
"""


def test_scatter_out_of_range(jit):
    function = jit(SCATTER)
    ones = torch.ones(4)
    assert function(ones, torch.tensor([2.0, 3.0]), torch.tensor([[1], [1]], dtype=torch.int32))[0].tolist() == [
        1,
        6,
        1,
        1,
    ]
    assert ones.tolist() == [1, 1, 1, 1]
    for wrong in (4, -1):
        with pytest.raises(UsageError, match="an index is out of range"):
            function(ones, torch.ones(2), torch.tensor([[0], [wrong]], dtype=torch.int32))


SLICES = """
func.func @main(%out: tensor<4x3xf32>, %row: tensor<1x3xf32>, %where: tensor<i64>) -> tensor<4x3xf32> {
  %w = tensor.extract %where[] : tensor<i64>
  %i = arith.index_cast %w : i64 to index
  %r = tensor.insert_slice %row into %out[%i, 0] [1, 3] [1, 1] : tensor<1x3xf32> into tensor<4x3xf32>
  return %r : tensor<4x3xf32>
}
"""


def test_slice_out_of_range(jit):
    function = jit(SLICES)
    assert function(torch.zeros(4, 3), torch.ones(1, 3), torch.tensor(3))[0].sum(1).tolist() == [0, 0, 0, 3]
    for wrong in (4, -1):
        with pytest.raises(UsageError, match=r"an index is out of range for a tensor of shape \[4, 3\]"):
            function(torch.zeros(4, 3), torch.ones(1, 3), torch.tensor(wrong))


DYNAMIC = {0: Dim("n"), 1: Dim("m")}


def _module_after(last, function, count):
    options = {"output_type": "linalg-on-tensors", "dynamic_shapes": (DYNAMIC,) * count}
    module = copy_module(lower(function, *[torch.ones(2, 3)] * count, **options).module.operation)
    for stage in LLVM.stages:
        run_stage(stage, module)
        if stage.name == last:
            break
    return module


def test_only_sizes_of_different_tensors_are_compared():
    module = _module_after("loops", lambda x, y: (x * y).sum(-1), 2)
    comparisons = [op.operands[0].owner for op in operations(module.operation, ("cf.assert",))]
    assert [str(op.attributes["pred"]) for op in comparisons] == ["#index<cmp_predicate eq>"] * 2
    assert all(len({size.owner.operands[0] for size in op.operands}) == 2 for op in comparisons)


def test_equal_loops_with_checks_are_one_kernel():
    module = _module_after("kernels", lambda x: x.cumsum(0).cumsum(0).cumsum(0).cumsum(0), 1)
    assert "call @__fx_importer_check" in str(module)
    assert len([name for name in functions_of(module) if "kernel" in name]) == 3
