"""Distributions of random numbers: means and deviations of many, and the support of small ones."""

import pytest
import torch

from fx_importer.decompositions.random import distributions

MANY = torch.full((200, 100), 0.3)

CASES = {  # mean and standard deviation
    "bernoulli": (lambda: distributions.bernoulli(MANY), 0.3, 0.21**0.5),
    "bernoulli.p": (lambda: distributions.bernoulli_scalar(MANY, 0.7), 0.7, 0.21**0.5),
    "native_dropout": (lambda: distributions.native_dropout(MANY, 0.25, True)[0], 0.3, 0.4 * 0.1875**0.5),
    "normal": (lambda: distributions.normal(MANY, 2.0), 0.3, 2.0),
    "normal of two tensors": (lambda: distributions.normal(MANY, MANY[0]), 0.3, 0.3),
    "normal_functional": (lambda: distributions.normal_functional(MANY, -1.0, 0.5), -1.0, 0.5),
    "uniform": (lambda: distributions.uniform(MANY, 2.0, 5.0), 3.5, 3 / 12**0.5),
    "exponential": (lambda: distributions.exponential(MANY, 2.0), 0.5, 0.5),
    "log_normal": (lambda: distributions.log_normal(MANY, 0.0, 1.0).log(), 0.0, 1.0),
    "geometric": (lambda: distributions.geometric(MANY, 0.4), 2.5, 0.6**0.5 / 0.4),
    "poisson": (lambda: distributions.poisson(MANY), 0.3, 0.3**0.5),
    "poisson of larger rates": (lambda: distributions.poisson(MANY * 100), 30.0, 30**0.5),
    "randint_like": (lambda: distributions.randint_like(MANY, -1, 4), 1.0, 2**0.5),
    "cauchy": (lambda: (distributions.cauchy(MANY, 1.0, 2.0) < 3).float(), 0.75, 0.1875**0.5),
}


@pytest.mark.parametrize("name", CASES)
def test_mean_and_deviation(name):
    draw, mean, deviation = CASES[name]
    torch.manual_seed(0)
    found = draw()
    assert found.dtype == torch.float32
    assert found.shape == MANY.shape
    assert abs(found.mean() - mean) < 0.03 * max(1, deviation)
    assert abs(found.std() - deviation) < 0.03 * max(1, deviation)


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial(replacement):
    weights = torch.tensor([0.0, 1, 2, 1, 0]).expand(20000, 5)
    torch.manual_seed(0)
    found = distributions.multinomial(weights, 2, replacement)
    share = torch.bincount(found[:, 0], minlength=5) / 20000
    torch.testing.assert_close(share, weights[0] / 4, rtol=0, atol=0.02)
    assert bool((found[:, 0] == found[:, 1]).any()) is replacement
    assert weights[0][found].min() > 0


def test_randperm_is_a_permutation():
    assert torch.equal(distributions.randperm(50).sort()[0], torch.arange(50))


def test_dropout_outside_of_training():
    x, kept = distributions.native_dropout(MANY, 0.5, False)
    assert torch.equal(x, MANY)
    assert kept.all()
    assert not distributions.native_dropout(MANY, 1.0, True)[0].any()
