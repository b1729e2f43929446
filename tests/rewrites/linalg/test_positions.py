"""Positions that loops compute where they are read."""

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.pipelines import run_text

POSITIONS = """
  %e = tensor.empty() : tensor<4xi64>
  %p = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    outs(%e : tensor<4xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 0 : index
    %c = arith.index_cast %i : index to i64
    BODY
    linalg.yield %y : i64
  } -> tensor<4xi64>
"""
SHORT, LONG = "%y = arith.addi %c, %c : i64", "%s = arith.addi %c, %c : i64\n%y = arith.muli %s, %s : i64"
TOO_LONG = "\n".join(f"%s{n + 1} = arith.addi %s{n}, %c : i64" for n in range(6)).replace("%s0", "%c") + "\n" + SHORT


def rewritten(reads: str, body: str = SHORT) -> str:
    """Return a function that computes positions, and reads them in loops over ``%r`` of 2 x 4 integers."""
    context = new_context()
    load_dialects(context)
    positions = POSITIONS.replace("BODY", body) if body else POSITIONS.replace("BODY", "").replace("%y", "%c")
    text = f"func.func @main(%r: tensor<2x4xi64>) -> tensor<2x4xi64> {{\n{positions}{reads} }}"
    module = ir.Module.parse(text, context)
    run_text("builtin.module(fx-importer-inline-positions,func.func(canonicalize,cse))", module)
    module.operation.verify()
    return module.operation.get_asm(use_local_scope=True)


def read(result: str, operand: str, kind: str, indexing: str, kinds: str = '"parallel", "parallel"') -> str:
    return f"""
  %{result} = linalg.generic {{indexing_maps = [affine_map<{indexing}>, affine_map<(i, j) -> (i, j)>],
    iterator_types = [{kinds}]}} ins({operand} : {kind}) outs(%r : tensor<2x4xi64>) {{
  ^bb0(%a: i64, %o: i64):
    %v = arith.addi %a, %o : i64
    linalg.yield %v : i64
  }} -> tensor<2x4xi64>
"""


ALONG = "(i, j) -> (j)"


@pytest.mark.parametrize("body", [SHORT, LONG])
def test_one_reader(body):
    text = rewritten(read("x", "%p", "tensor<4xi64>", ALONG) + "return %x : tensor<2x4xi64>", body)
    assert text.count("linalg.generic") == 1
    assert "linalg.index 1" in text
    assert "tensor<4xi64>" not in text


def test_axes_of_size_1_between():
    wide = "%w = tensor.expand_shape %p [[0, 1, 2]] output_shape [1, 4, 1] : tensor<4xi64> into tensor<1x4x1xi64>"
    text = rewritten(wide + read("x", "%w", "tensor<1x4x1xi64>", "(i, j) -> (0, j, 0)") + "return %x : tensor<2x4xi64>")
    assert text.count("linalg.generic") == 1


def test_computations_of_many_operations_stay():
    assert (
        rewritten(read("x", "%p", "tensor<4xi64>", ALONG) + "return %x : tensor<2x4xi64>", TOO_LONG).count("generic")
        == 2
    )


@pytest.mark.parametrize(("body", "loops"), [("", 2), (SHORT, 3)])
def test_only_positions_are_repeated(body, loops):
    reads = read("x", "%p", "tensor<4xi64>", ALONG)
    reads += read("z", "%p", "tensor<4xi64>", ALONG).replace("addi", "muli")
    text = rewritten(reads + "%s = arith.addi %x, %z : tensor<2x4xi64>\nreturn %s : tensor<2x4xi64>", body)
    assert text.count("linalg.generic") == loops


def test_positions_that_give_the_size_of_a_sum_stay():
    summed = """
  %x = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (k)>, affine_map<(i, j, k) -> (i, j)>],
    iterator_types = ["parallel", "parallel", "reduction"]} ins(%p : tensor<4xi64>) outs(%r : tensor<2x4xi64>) {
  ^bb0(%a: i64, %o: i64):
    %v = arith.addi %a, %o : i64
    linalg.yield %v : i64
  } -> tensor<2x4xi64>
  return %x : tensor<2x4xi64>
"""
    assert rewritten(summed).count("linalg.generic") == 2
