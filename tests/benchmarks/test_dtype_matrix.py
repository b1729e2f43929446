"""The table of docs/dtypes.md, held against what happens; linalg-on-tensors by default, all with ``-m slow``."""

import pytest
import torch

from benchmarks.dtype_matrix import ALL, cell, recorded
from fx_importer import OutputType

QUICK = {OutputType.LINALG_ON_TENSORS}
CASES = [
    pytest.param(dtype, output_type, marks=() if output_type in QUICK else pytest.mark.slow)
    for dtype in ALL
    for output_type in OutputType
]


@pytest.mark.parametrize("dtype, output_type", CASES, ids=str)
def test_the_page_says_what_happens(dtype: torch.dtype, output_type: OutputType):
    assert recorded()[str(dtype).removeprefix("torch."), output_type.value] == str(cell(dtype, output_type))


def test_nothing_is_at_fault():
    verdicts = recorded().values()
    assert len(verdicts) == len(ALL) * len(OutputType)
    assert not [text for text in verdicts if "FAULT" in text]
