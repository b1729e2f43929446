"""Operations that would be folded wrongly for NaN are kept, at a cost that is linear in their number."""

from __future__ import annotations

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.rewrites import keep_tosa_floats


@pytest.mark.parametrize("first, kept", [("%arg0", 0), ("%zero", 63)])
def test_squares_of_squares(first: str, kept: int):
    context = new_context()
    load_dialects(context)
    squares = "".join(
        f"%{i + 1} = tosa.mul %{i}, %{i}, %shift : (tensor<3xf32>, tensor<3xf32>, tensor<1xi8>) -> tensor<3xf32>\n"
        for i in range(63)
    )
    module = ir.Module.parse(
        f"""func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {{
          %shift = "tosa.const"() <{{values = dense<0> : tensor<1xi8>}}> : () -> tensor<1xi8>
          %zero = "tosa.const"() <{{values = dense<0.0> : tensor<3xf32>}}> : () -> tensor<3xf32>
          %0 = tosa.identity {first} : (tensor<3xf32>) -> tensor<3xf32>
          {squares}return %63 : tensor<3xf32>
        }}""",
        context,
    )
    keep_tosa_floats(module.operation)
    assert module.operation.verify()
    assert str(module).count("tosa.identity") == 1 + 2 * kept
