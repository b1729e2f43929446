"""Loops that write in another order than they read are in blocks; all others stay."""

from __future__ import annotations

import pytest
import torch

from fx_importer import lower
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.mlir.walk import operations
from fx_importer.rewrites import block_loops
from fx_importer.rewrites.llvm.parallel_loops import constant_bound

INDEX = "%i = linalg.index 0 : index"
CASES = {
    "images to channels last": ("(d2, d0, d1)", "48x64x64", "64x64x48", "", [64, 6, 64, 8]),
    "channels last to images": ("(d1, d0)", "4096x12", "12x4096", "", [128, 12, 32]),
    "with gaps": ("(d1, d0)", "4096x12", "12x4096xf32, strided<[5000, 1], offset: ?>", "", [128, 12, 32]),
    "lines of another loop": ("(d2, d0)", "24x20", "20x3x24", "", [3, 2, 20, 12]),
    "the same order": ("(d0, d1)", "64x4096", "64x4096", "", None),
    "rows that stay in the cache": ("(d1, d0)", "96x20", "20x96", "", None),
    "short rows": ("(d1, d0)", "4096x4", "4x4096", "", None),
    "a prime size": ("(d1, d0)", "4099x12", "12x4099", "", None),
    "dynamic": ("(d1, d0)", "?x12", "12x?", "", None),
    "no rows": ("(d1, d0)", "4096x0", "0x4096", "", None),
    "numbers of loops": ("(d1, d0)", "4096x12", "12x4096", INDEX, None),
}


def blocked(indices: str, operand: str, result: str, body: str) -> list[int | None] | None:
    dims = "(d0, d1, d2)" if result.count("x") > 1 and "," not in result else "(d0, d1)"
    types = [f"memref<{kind if 'f32' in kind else f'{kind}xf32'}>" for kind in (operand, result)]
    text = f"""func.func @main(%a: {types[0]}, %b: {types[1]}) {{
        linalg.generic {{indexing_maps = [affine_map<{dims} -> {indices}>, affine_map<{dims} -> {dims}>],
            iterator_types = [{", ".join(['"parallel"'] * dims.count("d"))}]}}
            ins(%a : {types[0]}) outs(%b : {types[1]}) {{
        ^bb0(%x: f32, %y: f32): {body} linalg.yield %x : f32 }}
        return }}"""
    load_dialects(context := new_context())
    module = ir.Module.parse(text, context)
    block_loops(module.operation)
    module.operation.verify()
    if operations(module.operation, ("linalg.generic",)):
        return None
    (loop,) = operations(module.operation, ("scf.parallel",))
    count = len(loop.regions[0].blocks[0].arguments)
    return [constant_bound(bound) for bound in list(loop.operands)[count : 2 * count]]


@pytest.mark.parametrize("indices, operand, result, body, expected", CASES.values(), ids=CASES)
def test_loops(indices: str, operand: str, result: str, body: str, expected: list[int] | None) -> None:
    assert blocked(indices, operand, result, body) == expected


def test_loops_with_two_results_stay() -> None:
    kinds, maps = ("memref<4096x12xf32>", "memref<12x4096xf32>"), "affine_map<(d0, d1) -> (d0, d1)>"
    text = f"""func.func @main(%a: {kinds[0]}, %b: {kinds[1]}, %c: {kinds[1]}) {{
        linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, {maps}, {maps}],
            iterator_types = ["parallel", "parallel"]}} ins(%a : {kinds[0]}) outs(%b, %c : {kinds[1]}, {kinds[1]}) {{
        ^bb0(%x: f32, %y: f32, %z: f32): linalg.yield %x, %x : f32, f32 }}
        return }}"""
    load_dialects(context := new_context())
    module = ir.Module.parse(text, context)
    block_loops(module.operation)
    assert operations(module.operation, ("linalg.generic",))


def test_blocks_compute_all_elements() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        last = (x.permute(0, 2, 3, 1) + y).contiguous()
        return last, last.flatten(1, 2).mT.contiguous(), x.double().transpose(1, 3).contiguous()

    x, y = torch.randn(2, 48, 32, 64), torch.randn(48)
    for result, expected in zip(lower(f, x, y, output_type="linalg-on-tensors").caller()(x, y), f(x, y), strict=True):
        assert torch.equal(result, expected)
