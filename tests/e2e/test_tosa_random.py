"""Random numbers in TOSA: constants that are drawn from torch's generator when a program is lowered."""

import importlib.util

import pytest
import torch

from fx_importer import lower
from fx_importer.errors import RandomNumbersWarning

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
    with pytest.warns(RandomNumbersWarning) as warned:
        lowered = lower(program, x, output_type="tosa")
    (message,) = [str(each.message) for each in warned]
    named = ("dropout", "rand", "bernoulli", "multinomial", "normal")
    assert all(f"{name} (at {__file__}:" in message for name in named), message
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
    with pytest.warns(RandomNumbersWarning):
        again = lower(program, x, output_type="tosa").run(x)
    assert all(torch.equal(a, b) for a, b in zip(again, lowered.run(x), strict=True))


def test_random_numbers_are_not_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        with pytest.warns(RandomNumbersWarning):
            lowered = lower(torch.rand_like, torch.ones(3), output_type="tosa", cache=True)
        assert "not cached: random numbers were drawn" in lowered.trace.stages[-1].remarks
