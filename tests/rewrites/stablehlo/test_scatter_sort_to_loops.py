"""StableHLO's scatter and sort, and its sums of booleans, on the JIT beside the reference interpreter."""

import pytest
import torch

from fx_importer.engines import JitBackend, backend_named
from fx_importer.mlir.bindings import ir, load_dialects, new_context

SCATTERS = {
    "rows, two of them equal": (
        "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
        "index_vector_dim = 1",
        ((4, 3), (3, 1), (3, 3)),
    ),
    "windows beyond the bounds": (
        "update_window_dims = [0, 2], scatter_dims_to_operand_dims = [1, 0], index_vector_dim = 0",
        ((4, 3), (2, 5), (2, 5, 2)),
    ),
    "batches, and indices without an axis of their own": (
        "inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [1], "
        "scatter_dims_to_operand_dims = [1], index_vector_dim = 2",
        ((3, 4), (2, 3), (2, 3)),
    ),
    "one element": (
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 0",
        ((4,), (1,), ()),
    ),
    "no axis": ("index_vector_dim = 1", ((), (2, 0), (2,))),
    "an empty input": (
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
        ((0,), (2, 1), (2,)),
    ),
}
DTYPES = {"f32": torch.float32, "i1": torch.bool, "ui8": torch.uint8, "complex<f32>": torch.complex64}


def module_of(text: str) -> ir.Module:
    load_dialects(context := new_context())
    return ir.Module.parse(text, context)


def tensor(shape: tuple[int, ...], element: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def as_dynamic(kind: str) -> str:
    return kind.replace("<4x", "<?x").replace("<3x", "<?x").replace("<0x", "<?x")


@pytest.mark.parametrize("name", SCATTERS)
def test_scatter(name):
    """Scatter to inputs of static and of dynamic shape."""
    numbers, shapes = SCATTERS[name]
    static = [tensor(shapes[0], each) for each in ("f32", "i1")]  # a sum of floats, and the last of the booleans
    dynamic = [each.replace("<4x", "<?x").replace("<3x", "<?x").replace("<0x", "<?x") for each in static]
    given = [tensor(shapes[1], "i64"), *(tensor(shapes[2], each) for each in ("f32", "i1"))]
    text = f"""func.func @main(%x: X, %y: Y, %i: {given[0]}, %u: {given[1]}, %v: {given[2]}) -> (X, Y) {{
      %r:2 = "stablehlo.scatter"(%x, %y, %i, %u, %v) <{{
        scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<i1>, %c: tensor<f32>, %d: tensor<i1>):
          %s = stablehlo.add %a, %c : tensor<f32>
          stablehlo.return %s, %d : tensor<f32>, tensor<i1>
      }}) : (X, Y, {", ".join(given)}) -> (X, Y)
      return %r#0, %r#1 : X, Y
    }}"""
    module, any_size = (module_of(text.replace("X", x).replace("Y", y)) for x, y in (static, dynamic))
    x, u = torch.randn(shapes[0]), torch.randn(shapes[2])
    indices = torch.tensor([1, 3, 1, -1, 9, 0, 2, 2, 0, 1])[: torch.Size(shapes[1]).numel()].reshape(shapes[1])
    inputs = (x, x > 0, indices, u, u > 0)
    expected = backend_named("stablehlo").load(module)(*inputs)
    for each in (module, any_size):
        for found, wanted in zip(JitBackend().load(each)(*inputs), expected, strict=True):
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("element", DTYPES)
def test_sort_of_pairs(element):
    """Sort the rows by their second operand; equal ones stay in order."""
    kind, keys = tensor((2, 7), element), "tensor<2x7xi32>"
    text = f"""func.func @main(%x: {kind}, %k: {keys}) -> ({kind}, {keys}) {{
      %r:2 = "stablehlo.sort"(%x, %k) <{{dimension = 1 : i64, is_stable = true}}> ({{
        ^bb0(%a: tensor<{element}>, %b: tensor<{element}>, %c: tensor<i32>, %d: tensor<i32>):
          %s = stablehlo.compare GT, %c, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %s : tensor<i1>
      }}) : ({kind}, {keys}) -> ({kind}, {keys})
      return %r#0, %r#1 : {kind}, {keys}
    }}"""
    x = torch.arange(14).reshape(2, 7).to(DTYPES[element])
    order = torch.tensor([[1, 5, 1, 2, 0, 2, 1], [3, 3, 3, 1, 9, -1, 9]], dtype=torch.int32)
    values, found = JitBackend().load(module_of(text))(x, order)
    expected, indices = order.sort(dim=1, descending=True, stable=True)
    assert torch.equal(found, expected)
    assert torch.equal(values.view(x.dtype), torch.gather(x, 1, indices))


def test_sums_of_booleans():
    kind = "tensor<4xi1>"
    text = f"""func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{
      %r = stablehlo.add %a, %b : {kind}
      return %r : {kind}
    }}"""
    a, b = torch.tensor([False, False, True, True]), torch.tensor([False, True, False, True])
    assert torch.equal(JitBackend().load(module_of(text))(a, b)[0], a | b)
