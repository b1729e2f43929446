"""Transposes of weights are folded to constants; unused constants are removed."""

from __future__ import annotations

import numpy as np

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.mlir.resources import key_of, resource_bytes, resources_in
from fx_importer.rewrites import transpose_tosa_weights

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_used_and_unused_transposes():
    context = new_context()
    load_dialects(context)
    module = ir.Module.parse(
        """
        func.func @main() -> tensor<3x2xf32> {
          %0 = "tosa.const"() <{values = dense_resource<"a>b"> : tensor<2x3xf32>}> : () -> tensor<2x3xf32>
          %1 = tosa.transpose %0 {perms = array<i32: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
          %2 = tosa.transpose %0 {perms = array<i32: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
          return %1 : tensor<3x2xf32>
        }
        {-# dialect_resources: { builtin: { "a>b": "0x04000000BYTES" } } #-}
        """.replace("BYTES", WEIGHT.tobytes().hex()),
        context,
    )
    transpose_tosa_weights(module.operation)
    assert module.operation.verify()
    assert "tosa.transpose" not in str(module)
    values = {value for _, _, value in resources_in(module.operation)}
    (value,) = values
    assert key_of(value) == "a>b.transposed"
    found = resource_bytes(value, WEIGHT.nbytes)
    assert found is not None
    np.testing.assert_array_equal(found.view(np.float32).reshape(3, 2), WEIGHT.T)
