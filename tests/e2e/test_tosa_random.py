"""Random numbers in TOSA: constants that are drawn from torch's generator when a program is lowered."""

import importlib.util

import pytest
import torch

from fx_importer import lower

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tosa_reference_model") is None, reason="the extra 'tosa' is not installed"
)


def program(x):
    dropped = torch.nn.functional.dropout(x, 0.5, True), torch.nn.functional.dropout(x, 0.5, True)
    return (
        *dropped,
        torch.rand(40) - torch.rand(40),
        torch.bernoulli(x, 0.5),
        torch.multinomial(x, 7),
        torch.normal(x, x),
    )


def test_numbers_are_drawn_at_lowering():
    x = torch.ones(40)
    torch.manual_seed(3)
    lowered = lower(program, x, output_type="tosa")
    assert "f64" not in str(lowered.module)
    first, second, difference, bits, indices, normal = lowered.run(x)
    assert not torch.equal(first, second)
    assert difference.abs().max() > 0.1
    assert set(first.tolist()) == {0.0, 2.0}
    assert set(bits.tolist()) == {0.0, 1.0}
    assert len(set(indices.tolist())) == 7
    assert normal.std() > 0.5
    (remark,) = [each for stage in lowered.trace.stages for each in stage.remarks if "random" in each]
    assert "are the same in each call" in remark
    torch.manual_seed(3)
    again = lower(program, x, output_type="tosa").run(x)
    assert all(torch.equal(a, b) for a, b in zip(again, lowered.run(x), strict=True))
