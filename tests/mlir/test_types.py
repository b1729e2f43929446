"""The reader of torch types."""

from __future__ import annotations

import pytest

from fx_importer.mlir.bindings import ir, new_context
from fx_importer.mlir.types import TorchTensor, is_incomplete, short_text

COMPLETE = {
    "!torch.vtensor<[2,?],f32>": TorchTensor((2, None), "f32"),
    "!torch.vtensor<[],si64>": TorchTensor((), "si64"),
    "!torch.tensor<[4],ui8>": TorchTensor((4,), "ui8", mutable=True),
    "!torch.vtensor<[3],complex<f64>>": TorchTensor((3,), "complex<f64>"),
}


@pytest.mark.parametrize("text", COMPLETE)
def test_types_are_read_and_written(text: str):
    context = new_context()
    type_ = ir.Type.parse(text, context)
    assert TorchTensor.read(type_) == COMPLETE[text]
    assert COMPLETE[text].mlir(context) == type_
    assert not is_incomplete(type_)


@pytest.mark.parametrize("text", ["!torch.vtensor<*,f32>", "!torch.vtensor<[2],unk>", "!torch.tensor", "!torch.any"])
def test_types_without_rank_or_dtype_are_incomplete(text: str):
    type_ = ir.Type.parse(text, new_context())
    assert TorchTensor.read(type_) is None
    assert is_incomplete(type_)


def test_builtin_types_are_not_torch_tensors():
    assert TorchTensor.read(ir.Type.parse("tensor<2xf32>", new_context())) is None


def test_elements_without_signs():
    elements = [TorchTensor((), element).signless_element for element in ("si64", "ui8", "i1", "f32")]
    assert elements == ["i64", "i8", "i1", "f32"]


def test_short_text_of_lists():
    type_ = ir.Type.parse("!torch.list<vtensor<[4,?],f32>>", new_context())
    assert short_text(type_) == "list<f32[4,?]>"
