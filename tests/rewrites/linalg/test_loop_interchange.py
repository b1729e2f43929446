"""Loop interchange of linalg operations, and loops as functions."""

import pytest
import torch

from fx_importer.mlir.bindings import ir
from fx_importer.pipelines.llvm import BUFFERIZE, FUSE, LOOPS, SCALARS, TO_LLVM
from fx_importer.pipelines.runner import run_stage
from fx_importer.rewrites.linalg.loop_interchange import interchange_loops, permute_operand_map, row_order
from fx_importer.rewrites.llvm.kernel_outlining import outline_kernels

REDUCTION = """
func.func @main(%a: tensor<{a}xf32>, %b: tensor<{b}xf32>, %c: tensor<{c}xf32>) -> tensor<{c}xf32> {{
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
    ins(%a, %b : tensor<{a}xf32>, tensor<{b}xf32>) outs(%c : tensor<{c}xf32>) {{
  ^bb0(%x: f32, %y: f32, %z: f32):
    {index}
    %m = arith.mulf %x, %y : f32
    %s = arith.addf %z, %m : f32
    linalg.yield %s : f32
  }} -> tensor<{c}xf32>
  return %r : tensor<{c}xf32>
}}
"""


def reduction(loops: str, kinds: str, a: str, b: str, c: str, maps: tuple[str, str, str], index: str = "") -> str:
    names = {"p": '"parallel"', "r": '"reduction"'}
    return REDUCTION.format(
        a=a,
        b=b,
        c=c,
        maps=", ".join(f"affine_map<({loops}) -> ({each})>" for each in maps),
        kinds=", ".join(names[kind] for kind in kinds),
        index=index,
    )


MATMUL = reduction("m, n, k", "ppr", "3x4", "4x5", "3x5", ("m, k", "k, n", "m, n"))


@pytest.mark.parametrize(
    "text, kinds, maps",
    [
        # m, k, n: the last loop runs along rows of B and C.
        (MATMUL, "prp", ["(d0, d1)", "(d1, d2)", "(d0, d2)"]),
        # A product with a transposed B: k runs along rows of A and B, and stays innermost.
        (
            reduction("m, n, k", "ppr", "3x4", "5x4", "3x5", ("m, k", "n, k", "m, n")),
            "ppr",
            ["(d0, d2)", "(d1, d2)", "(d0, d1)"],
        ),
        # A convolution: w runs along rows of the image and the result.
        (
            reduction("f, w, c, i", "pprr", "2x9", "4x2x3", "4x7", ("c, w + i", "f, c, i", "f, w")),
            "prrp",
            ["(d1, d2 + d3)", "(d0, d1, d2)", "(d0, d3)"],
        ),
        # Already in order.
        (
            reduction("k, n", "rp", "4x5", "4x5", "5", ("k, n", "k, n", "n")),
            "rp",
            ["(d0, d1)", "(d0, d1)", "(d1)"],
        ),
        # The body depends on the order.
        (
            reduction("m, n, k", "ppr", "3x4", "4x5", "3x5", ("m, k", "k, n", "m, n"), "%i = linalg.index 2 : index"),
            "ppr",
            ["(d0, d2)", "(d2, d1)", "(d0, d1)"],
        ),
    ],
    ids=["matmul", "matmul-transposed", "convolution", "columns", "index"],
)
def test_the_innermost_loop_runs_along_rows(parse, text, kinds, maps):
    module = parse(text)
    interchange_loops(module.operation)
    assert module.operation.verify()
    (op,) = [
        each for each in module.body.operations[0].entry_block.operations if each.operation.name == "linalg.generic"
    ]
    found = [str(each) for each in ir.ArrayAttr(op.attributes["iterator_types"])]
    assert ["r" if "reduction" in each else "p" for each in found] == list(kinds)
    results = [str(each).split("-> ")[1].removesuffix(">") for each in ir.ArrayAttr(op.attributes["indexing_maps"])]
    assert results == maps


def test_a_sum_reads_along_rows(parse):
    module = parse("""
func.func @main(%x: tensor<2x3x4xf32>, %c: tensor<3xf32>) -> tensor<3xf32> {
  %r = linalg.generic {
    indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (b)>],
    iterator_types = ["reduction", "parallel", "reduction"]
  } ins(%x : tensor<2x3x4xf32>) outs(%c : tensor<3xf32>) {
  ^bb0(%y: f32, %z: f32):
    %s = arith.addf %y, %z : f32
    linalg.yield %s : f32
  } -> tensor<3xf32>
  return %r : tensor<3xf32>
}
""")
    before = str(module)
    interchange_loops(module.operation)
    assert str(module) == before


@pytest.mark.parametrize(
    "b, maps, order",
    [
        ("4x5", ("m, k", "k, n", "m, n"), None),  # already in order
        ("5x4", ("m, k", "n, k", "m, n"), (1, 0)),
        ("4x5", ("m, k", "k, n", "n, m"), None),  # no dimension runs along the result's rows
    ],
)
def test_contraction_prefers_rows_of_its_result(parse, b, maps, order):
    c = "5x3" if maps[2] == "n, m" else "3x5"
    module = parse(reduction("m, n, k", "ppr", "3x4", b, c, maps))
    (op,) = [
        each.operation
        for each in module.body.operations[0].entry_block.operations
        if each.operation.name == "linalg.generic"
    ]
    assert row_order(op, 1) == order
    assert row_order(op, 2) is None
    if order:
        with module.context:
            permute_operand_map(op, 1, order)
        assert "(d2, d1)" in str(ir.ArrayAttr(op.attributes["indexing_maps"])[1])


def test_interchanged_contraction_computes_the_same(jit):
    a, b, c = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
    (result,) = jit(MATMUL)(a, b, c)
    torch.testing.assert_close(result, c + a @ b)


TWO_SUMS = """
func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: f32) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%x: f32, %z: f32):
    %s = arith.addf %x, %c : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%b : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%x: f32, %z: f32):
    %s = arith.addf %x, %c : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  return %r, %q : tensor<4xf32>, tensor<4xf32>
}
"""


def test_equal_loops_become_one_function(parse):
    module = parse(TWO_SUMS.replace("f32) ->", "f32 {bufferization.writable = false}) ->"))
    for stage in (FUSE, BUFFERIZE, LOOPS):
        run_stage(stage, module)
    outline_kernels()(module.operation)
    assert module.operation.verify()
    main, kernel = module.body.operations
    assert "scf.for" not in str(main)
    assert str(main).count("call @") == 2
    assert str(kernel).startswith("func.func private @kernel_")
    assert [str(each) for each in kernel.type.inputs] == ["memref<4xf32>", "f32", "memref<4xf32>"]
    assert "llvm.bareptr" in kernel.attributes


SLICES = """
func.func @main(%a: tensor<3x4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %x = tensor.extract_slice %a[1, 0] [1, 4] [1, 1] : tensor<3x4xf32> to tensor<4xf32>
  %y = tensor.extract_slice %a[2, 0] [1, 4] [1, 1] : tensor<3x4xf32> to tensor<4xf32>
  %p = linalg.add ins(%x, %b : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %q = linalg.add ins(%y, %b : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %p, %q : tensor<4xf32>, tensor<4xf32>
}
"""


def test_loops_over_slices_at_other_places_become_one_function(parse):
    module = parse(SLICES)
    for stage in (FUSE, BUFFERIZE, LOOPS):
        run_stage(stage, module)
    outline_kernels()(module.operation)
    assert module.operation.verify()
    _, kernel = module.body.operations
    taken = [str(each) for each in kernel.type.inputs]
    assert taken == ["memref<3x4xf32>", "memref<4xf32>", "memref<4xf32>", "index"]
    assert "llvm.bareptr" in kernel.attributes


@pytest.mark.parametrize("rows, expected", [(4, ["noinline", "optsize"]), (1 << 20, ["noinline"]), ("?", ["noinline"])])
def test_short_loops_are_optimized_for_size(parse, rows, expected):
    text = TWO_SUMS.replace("tensor<4xf32>", f"tensor<{rows}xf32>")
    if rows == "?":
        size = "%i0 = arith.constant 0 : index\n %n = tensor.dim %a, %i0 : tensor<?xf32>\n"
        text = text.replace("%e = tensor.empty()", f"{size} %e = tensor.empty(%n)")
    module = parse(text)
    for stage in (FUSE, BUFFERIZE, LOOPS):
        run_stage(stage, module)
    outline_kernels()(module.operation)
    for stage in (SCALARS, TO_LLVM):
        run_stage(stage, module)
    names = {ir.StringAttr(op.attributes["sym_name"]).value: op for op in module.body.operations}
    (kernel,) = (op for name, op in names.items() if "kernel_" in name and not name.startswith(("launch_", "run_")))
    hints = [each for each in ir.ArrayAttr(kernel.attributes["passthrough"]) if isinstance(each, ir.StringAttr)]
    assert [each.value for each in hints] == expected


def test_dynamic_memrefs_are_passed_with_their_sizes(parse):
    size = "%i0 = arith.constant 0 : index\n %n = tensor.dim %a, %i0 : tensor<?xf32>\n"
    text = TWO_SUMS.replace("tensor<4xf32>", "tensor<?xf32>").replace(
        "%e = tensor.empty()", f"{size} %e = tensor.empty(%n)"
    )
    module = parse(text)
    for stage in (FUSE, BUFFERIZE, LOOPS):
        run_stage(stage, module)
    outline_kernels()(module.operation)
    assert module.operation.verify()
    kernels = [each for each in module.body.operations if "kernel_" in each.name.value]
    assert kernels
    assert not any("llvm.bareptr" in each.attributes for each in kernels)
