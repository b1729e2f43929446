"""The attention function of language models."""

import pytest
import torch

from fx_importer.llm.attention import attention


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_of_half_precision_are_in_float32(dtype, softcap):
    """Four heads share a key; one sequence sees all rows, one some, one none."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, heads, rows, 16).to(dtype) for heads, rows in ((8, 1), (2, 40), (2, 40)))
    seen = torch.ones(3, 1, 1, 40, dtype=torch.bool)
    seen[1, ..., 20:], seen[2] = False, False
    found, _ = attention(torch.nn.Module(), query, key, value, seen, softcap=softcap, fused=True)
    wide, _ = attention(torch.nn.Module(), query.float(), key.float(), value.float(), seen, softcap=softcap)
    assert found.dtype == dtype
    torch.testing.assert_close(found, wide.to(dtype))
    assert (found[2] == 0).all()
