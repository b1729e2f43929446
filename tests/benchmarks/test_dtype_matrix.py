"""docs/dtypes.md agrees with measurements: linalg-on-tensors by default, all output types with ``-m slow``."""

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


@pytest.mark.slow_rows("uint16|uint32|float8_e5m2-")
@pytest.mark.parametrize("dtype, output_type", CASES, ids=str)
def test_page_agrees_with_measurement(dtype: torch.dtype, output_type: OutputType):
    assert recorded()[str(dtype).removeprefix("torch."), output_type.value] == str(cell(dtype, output_type))


def test_no_cell_is_an_importer_error():
    verdicts = recorded().values()
    assert len(verdicts) == len(ALL) * len(OutputType)
    assert not [text for text in verdicts if "FAULT" in text]
