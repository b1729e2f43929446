"""Modules with other element types or static sizes, including their constants."""

from __future__ import annotations

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.probing.type_variants import type_variants

MODULE = """
func.func @main(%a: !torch.vtensor<[?,4],f64>, %l: !torch.list<vtensor<[4],f64>>) -> !torch.vtensor<[4,4],f64> {
  %0 = torch.vtensor.literal(dense<[[0.5, 1.0], [0x7FF8000000000000, 2.0]]> : tensor<2x2xf64>)
    : !torch.vtensor<[2,2],f64>
  %1 = torch.vtensor.literal(dense<(0.5,1.0)> : tensor<2xcomplex<f64>>) : !torch.vtensor<[2],complex<f64>>
  %2 = torch.vtensor.literal(dense<0.5> : tensor<2xbf16>) : !torch.vtensor<[2],bf16>
  %3 = torch.operator "torch.tests.op"(%a, %0) : (!torch.vtensor<[?,4],f64>, !torch.vtensor<[2,2],f64>)
    -> !torch.vtensor<[4,4],f64>
  return %3 : !torch.vtensor<[4,4],f64>
}
"""


@pytest.fixture(scope="module")
def context() -> ir.Context:
    context = new_context()
    load_dialects(context)
    return context


def test_types_and_constants_change_together(context) -> None:
    found = {description: text for text, description in type_variants(MODULE, context, static_sizes=True)}
    single, half, complexes, static = found.values()
    assert list(found) == [
        "float32 instead of float64",
        "float32 instead of half precision",
        "complex64 instead of complex128",
        "static sizes, without dynamic_shapes",
    ]
    assert "[[5.000000e-01, 1.000000e+00], [0x7FC00000, 2.000000e+00]]> : tensor<2x2xf32>" in single
    assert "%arg0: !torch.vtensor<[?,4],f32>, %arg1: !torch.list<vtensor<[4],f32>>" in single
    assert "complex<f64>" in single
    assert "dense<5.000000e-01> : tensor<2xf32>" in half
    assert "dense<(5.000000e-01,1.000000e+00)> : tensor<2xcomplex<f32>>" in complexes
    assert "%arg0: !torch.vtensor<[2,4],f64>" in static
    for text in found.values():
        assert ir.Module.parse(text, context).operation.verify()


def test_module_without_such_types_has_no_variants(context) -> None:
    kind = "!torch.vtensor<[4],f32>"
    text = f"func.func @main(%a: {kind}) -> {kind} {{ return %a : {kind} }}"
    assert list(type_variants(text, context, static_sizes=True)) == []


def test_data_dependent_sizes_have_no_static_variant(context) -> None:
    assert all("sizes" not in description for _, description in type_variants(MODULE, context, static_sizes=False))
