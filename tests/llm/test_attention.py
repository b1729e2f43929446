"""The attention function of language models."""

import threading

import pytest
import torch

from fx_importer.llm.architectures.attention import ALL_MASK_ATTENTION_FUNCTIONS, attention, own_attention


def test_sinks_take_a_part_of_the_weight():
    """As one more key with a value of zero; a sequence that sees no key gets zeros."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, heads, rows, 16) for heads, rows in ((8, 3), (2, 40), (2, 40)))
    seen, sinks = torch.rand(2, 1, 3, 40) > 0.5, torch.randn(8)
    seen[1, :, 2] = False
    found, _ = attention(torch.nn.Module(), query, key, value, seen, s_aux=sinks)
    keys, values = (each.repeat_interleave(4, 1) for each in (key, value))
    scores = (query @ keys.mT * 16**-0.5).masked_fill(~seen, -torch.inf)
    whole = torch.cat((scores, sinks.reshape(1, 8, 1, 1).expand(2, 8, 3, 1)), -1).softmax(-1)
    torch.testing.assert_close(found, (whole[..., :-1] @ values).transpose(1, 2))
    assert (found[1, 2] == 0).all()


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


def test_own_masks_are_for_one_thread_at_a_time():
    """A second thread waits, and does not take away the masks of the first."""

    def masks():
        with own_attention():
            found.append(dict(ALL_MASK_ATTENTION_FUNCTIONS))

    found = []
    with own_attention():
        thread = threading.Thread(target=masks)
        thread.start()
        thread.join(0.1)
        assert not found
        before = dict(ALL_MASK_ATTENTION_FUNCTIONS)
    thread.join()
    assert found == [before]
    assert dict(ALL_MASK_ATTENTION_FUNCTIONS) != before
