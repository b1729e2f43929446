"""Broadcasts of operands whose dynamic sizes are the same."""

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.pipelines import run_text


def folded(size: str) -> str:
    """Return a function that broadcasts an axis of size ``%d`` to ``%n``, the maximum of ``%d`` and ``size``."""
    context = new_context()
    load_dialects(context)
    text = f"""
    #identity = affine_map<(d0, d1) -> (d0, d1)>
    #first = affine_map<(d0, d1) -> (0, d1)>
    func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xf32> {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      %d = tensor.dim %x, %c0 : tensor<?x4xf32>
      %e = tensor.empty(%d) : tensor<?x4xf32>
      %a = linalg.exp ins(%x : tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
      %k = tensor.collapse_shape %a [[0, 1]] : tensor<?x4xf32> into tensor<?xf32>
      %elements = tensor.dim %k, %c0 : tensor<?xf32>
      %reshaped = arith.divsi %elements, %c4 : index
      %dy = tensor.dim %y, %c0 : tensor<?x4xf32>
      %n = arith.maxui %d, {size} : index
      %is_one = arith.cmpi eq, %d, %c1 : index
      %r = scf.if %is_one -> (tensor<?x4xf32>) {{
        %f = tensor.empty(%n) : tensor<?x4xf32>
        %g = linalg.generic {{indexing_maps = [#first, #identity], iterator_types = ["parallel", "parallel"]}}
          ins(%a : tensor<?x4xf32>) outs(%f : tensor<?x4xf32>) {{
        ^bb0(%in: f32, %out: f32):
          linalg.yield %in : f32
        }} -> tensor<?x4xf32>
        scf.yield %g : tensor<?x4xf32>
      }} else {{
        scf.yield %a : tensor<?x4xf32>
      }}
      return %r : tensor<?x4xf32>
    }}"""
    module = ir.Module.parse(text, context)
    run_text("builtin.module(fx-importer-fold-size-broadcasts,func.func(canonicalize))", module)
    module.operation.verify()
    return str(module)


@pytest.mark.parametrize("size", ["%d", "%reshaped"])
def test_broadcast_to_its_own_size_is_folded(size: str) -> None:
    assert "scf.if" not in folded(size)


@pytest.mark.parametrize("size", ["%dy", "%elements"])
def test_broadcast_to_another_size_stays(size: str) -> None:
    assert "scf.if" in folded(size)
