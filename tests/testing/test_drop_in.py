"""The torch dialect of `fx_importer.fx` is torch-mlir's, as text: a part of `python -m testing.drop_in`."""

from __future__ import annotations

import pytest

from testing.drop_in_cases import outcome, rows_of

SAME = (
    *("table_of_one", "bool_buffers", "bfloat16_buffer", "strided_buffer", "fp4_input", "as_strided_overlapping"),
    *("buffer_mutated", "input_mutated_mutable", "dynamic_square", "dynamic_returns_size", "coo_relu", "while_loop"),
)


@pytest.mark.slow_rows("^(bool_buffers|buffer_mutated|dynamic_returns_size|as_strided_overlapping)$")
@pytest.mark.filterwarnings("ignore")  # torch-mlir is not free of them
@pytest.mark.parametrize("name", SAME)
def test_text_is_torch_mlirs(name):
    assert {row["outcome"] for row in rows_of("programs", name, 1, lambda note: None)} == {"same"}


@pytest.mark.filterwarnings("ignore")
def test_operators():
    rows = rows_of("dynamic", "cumsum", 1, lambda note: None)
    assert [row["outcome"] for row in rows] == ["same", "same"]


def test_outcomes():
    error = ValueError("no")
    texts = {"ours": "a\nb", "torch-mlir": "a\nc"}
    assert outcome(texts, {}) == {"outcome": "differs", "reason": "b | c"}
    assert outcome({"torch-mlir": "a"}, {"ours": error})["outcome"] == "refused by us"
    assert outcome({"ours": "a"}, {"torch-mlir": error})["outcome"] == "refused by torch-mlir"
    assert outcome({}, {"ours": error, "torch-mlir": error})["outcome"] == "untyped"
