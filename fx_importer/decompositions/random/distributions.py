"""Random numbers of other distributions than the uniform and the normal one, from these.

The numbers are others than eager's; their distribution is the same. Uniform numbers are in [0, 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten

_SMALLEST_UNIFORM = 2.0**-25
"""Half of the step between uniform numbers of float32; zero, which has no logarithm, becomes this."""


def _uniform(shape: Sequence[Any]) -> Tensor:
    return torch.rand(list(shape), dtype=torch.float32)


def _log_uniform(shape: Sequence[Any]) -> Tensor:
    return torch.log(torch.clamp(_uniform(shape), min=_SMALLEST_UNIFORM))


def _without_generator(generator: Any) -> bool:
    return generator is None


@decomposes(aten.bernoulli.default, aten.bernoulli.Tensor)
def bernoulli(x: Tensor, p: Tensor | None = None, generator: Any = None) -> Tensor:
    """Return one with the probability ``p``, or with the probability that each element gives."""
    probability = x if p is None else p
    return (_uniform(x.shape) < probability).to(x.dtype) if _without_generator(generator) else NotImplemented


@decomposes(aten.bernoulli.p)
def bernoulli_scalar(x: Tensor, p: float = 0.5, generator: Any = None) -> Tensor:
    """Return one with the probability ``p``."""
    return (_uniform(x.shape) < p).to(x.dtype) if _without_generator(generator) else NotImplemented


@decomposes(aten.native_dropout.default)
def native_dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Return ``x`` with elements zero with the probability ``p``, the others scaled, and where they are kept."""
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    kept = _uniform(x.shape) >= p
    return x * kept.to(x.dtype) * (1 / (1 - p)), kept


@decomposes(aten.normal.Tensor_float, aten.normal.float_Tensor, aten.normal.Tensor_Tensor)
def normal(mean: Tensor | float, std: Tensor | float = 1.0, *, generator: Any = None) -> Tensor:
    """Return normal numbers with a mean and a standard deviation for each element."""
    tensors = [tensor for tensor in (mean, std) if isinstance(tensor, Tensor)]
    dtype = torch.result_type(*tensors) if len(tensors) == 2 else tensors[0].dtype
    if not _without_generator(generator) or dtype.is_complex:
        return NotImplemented
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
    return (torch.randn(shape, dtype=torch.float32) * std + mean).to(dtype)


@decomposes(aten.normal.float_float)
def normal_of_size(
    mean: float, std: float, size: Sequence[int], *, generator: Any = None, dtype: torch.dtype | None = None, **_: Any
) -> Tensor:
    """Return normal numbers of one mean and standard deviation."""
    if not _without_generator(generator):
        return NotImplemented
    return (torch.randn(list(size), dtype=torch.float32) * std + mean).to(dtype or torch.get_default_dtype())


@decomposes(aten.log_normal.default)
def log_normal(x: Tensor, mean: float = 1.0, std: float = 2.0, generator: Any = None) -> Tensor:
    """Return the exponential of normal numbers."""
    if not _without_generator(generator):
        return NotImplemented
    return torch.exp(torch.randn(list(x.shape), dtype=torch.float32) * std + mean).to(x.dtype)


@decomposes(aten.cauchy.default)
def cauchy(x: Tensor, median: float = 0.0, sigma: float = 1.0, generator: Any = None) -> Tensor:
    """Return the inverse of the cumulative distribution, a tangent, of uniform numbers."""
    angle = (_uniform(x.shape) - 0.5) * math.pi
    return (torch.tan(angle) * sigma + median).to(x.dtype) if _without_generator(generator) else NotImplemented


@decomposes(aten.geometric.default)
def geometric(x: Tensor, p: float, generator: Any = None) -> Tensor:
    """Return the number of trials up to the first success."""
    if not _without_generator(generator) or p == 1:
        return torch.ones_like(x) if p == 1 else NotImplemented
    return torch.clamp(torch.ceil(_log_uniform(x.shape) * (1 / math.log1p(-p))), min=1).to(x.dtype)


@decomposes(aten.randint_like.default, aten.randint_like.low_dtype)
def randint_like(x: Tensor, *bounds: int, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """Return integers of the half-open interval of ``bounds``."""
    low, high = (0, *bounds)[-2:]
    return torch.randint(low, high, list(x.shape), dtype=torch.int64).to(dtype or x.dtype)


@decomposes(aten.randperm.default)
def randperm(n: int, *, dtype: torch.dtype | None = torch.int64, **_: Any) -> Tensor:
    """Return the order of uniform numbers."""
    return torch.argsort(_uniform([n])).to(dtype or torch.int64)


@decomposes(aten.multinomial.default)
def multinomial(x: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """Return indices drawn with the weights ``x`` [..., n].

    Without replacement, they have the largest ratios of weights to exponential numbers, as in eager.
    """
    if not _without_generator(generator) or not is_static(x):
        return NotImplemented
    weights = x.float()
    if not replacement:
        return torch.topk(weights / -_log_uniform(x.shape).clamp(max=-_SMALLEST_UNIFORM), num_samples)[1]
    ends = torch.cumsum(weights, -1)
    drawn = _uniform([*x.shape[:-1], num_samples]) * ends[..., -1:]
    passed = (ends.unsqueeze(-2) <= drawn.unsqueeze(-1)).to(torch.int64).sum(-1)
    places = torch.where(weights > 0, torch.arange(x.shape[-1]), torch.zeros((), dtype=torch.int64))
    return torch.minimum(passed, torch.amax(places, -1, keepdim=True))  # rounding may pass the last weight


@decomposes(aten.poisson.default)
def poisson(x: Tensor, generator: Any = None) -> Tensor:
    """Return Poisson numbers of the rates ``x``: quantiles of uniform numbers. A negative rate, eager's error, gives 0.

    The quantile is within four of the first terms of its expansion by Cornish and Fisher, from where it is counted by
    the cumulative distribution, Q(k + 1, rate). From 10,000 on, that expansion is exact to the spacing of float32.
    """
    if not _without_generator(generator) or not x.is_floating_point():
        return NotImplemented
    rate = torch.clamp(x.float(), min=0.0)
    u = torch.clamp(_uniform(x.shape), min=_SMALLEST_UNIFORM)
    z = torch.special.ndtri(u)
    about = torch.floor(rate + torch.sqrt(rate) * z + (z * z - 1) / 6)
    k = torch.clamp(about - 4, min=0.0)
    term = torch.exp(torch.special.xlogy(k, rate) - rate - torch.lgamma(k + 1))
    below = torch.special.gammaincc(k + 1, rate)
    result = k
    for _ in range(8):
        result = result + (below < u).to(result.dtype)
        k = k + 1
        term = term * rate / k
        below = below + term
    return torch.where(rate < 10_000, result, torch.clamp(about, min=0.0)).to(x.dtype)


@decomposes(aten.rand_like.default)
def rand_like(x: Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """Return uniform numbers of the shape of ``x``."""
    dtype = dtype or x.dtype
    return NotImplemented if dtype.is_complex else torch.rand(list(x.shape), dtype=dtype)


@decomposes(aten.randn_like.default)
def randn_like(x: Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """Return normal numbers of the shape of ``x``."""
    dtype = dtype or x.dtype
    return NotImplemented if dtype.is_complex else torch.randn(list(x.shape), dtype=dtype)


@decomposes(aten.uniform.default)
def uniform(x: Tensor, low: float = 0.0, high: float = 1.0, generator: Any = None) -> Tensor:
    """Return uniform numbers of an interval."""
    result = _uniform(x.shape) * (high - low) + low
    return result.to(x.dtype) if _without_generator(generator) else NotImplemented


@decomposes(aten.normal_functional.default)
def normal_functional(x: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Return normal numbers of one mean and standard deviation."""
    result = torch.randn(list(x.shape), dtype=torch.float32) * std + mean
    return result.to(x.dtype) if _without_generator(generator) else NotImplemented


@decomposes(aten.exponential.default)
def exponential(x: Tensor, rate: float = 1.0, generator: Any = None) -> Tensor:
    """Return the inverse of the cumulative distribution, a logarithm, of uniform numbers."""
    return (_log_uniform(x.shape) * (-1 / rate)).to(x.dtype) if _without_generator(generator) else NotImplemented


FROM_UNIFORM_AND_NORMAL = (
    *(bernoulli, bernoulli_scalar, native_dropout),
    *(rand_like, randn_like, uniform, normal_functional, exponential),
)
"""Rules to ``rand`` and ``randn``, which are constants where a target has no random numbers."""

OTHER_DISTRIBUTIONS = (
    *(normal, normal_of_size, log_normal, cauchy, geometric, randint_like, randperm, multinomial, poisson),
)
"""Rules of operators that no backend supports."""
