"""Functions of torch whose C++ code reads sizes or values, as equal functions in Python that torch.export can trace."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import SymFloat, SymInt, Tensor
from torch.overrides import TorchFunctionMode

from fx_importer.frontend.python_functions.constructors import tensor
from fx_importer.frontend.python_functions.indexing import get_item, set_item
from fx_importer.frontend.python_functions.losses import ctc_loss
from fx_importer.frontend.python_functions.selections import cdist, cumulative, diff


class PythonFunctions(TorchFunctionMode):
    """Calls of the functions in `_IN_PYTHON`; a function that returns NotImplemented leaves the call to torch."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = kwargs or {}
        if (function := _IN_PYTHON.get(func)) is not None:
            result = function(*args, **keywords)
            if result is not NotImplemented:
                return result
        return func(*args, **keywords)


_WINDOW = 5
"""Kernel size, stride, padding, dilation and ceil_mode; ``return_indices`` may follow."""


def _max_pool1d(input: Tensor, *window: Any, return_indices: bool = False, **keywords: Any) -> Any:
    """Return the maxima of windows along an axis of dynamic size: the operator without indices reads the size."""
    if return_indices or len(window) > _WINDOW or isinstance(input.shape[-1], int):
        return NotImplemented
    return F.max_pool1d_with_indices(input, *window, **keywords)[0]


def _linspace(start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **keywords: Any) -> Any:
    """Return values from both ends to the middle, as the CPU's kernel computes them in single and double precision."""
    kind = torch.get_default_dtype() if dtype is None else dtype
    numbers = all(isinstance(value, int | float | SymInt | SymFloat) for value in (start, end))
    if isinstance(steps, int) or kind not in (torch.float32, torch.float64) or not numbers:
        return NotImplemented
    if not set(keywords) <= {"device"}:
        return NotImplemented
    step = (end - start) / torch.sym_max(steps - 1, 1)
    index = torch.arange(steps, **keywords)
    number = index.to(kind)
    return torch.where(index < torch.sym_max(steps // 2, 1), start + step * number, end - step * (steps - 1 - number))


def _cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Any:
    """Return the covariance matrix of rows. Negative weights and those that sum to 0, which torch refuses, give NaN."""
    if input.dim() > 2 or input.dtype == torch.bool:
        return NotImplemented
    rows = input if input.dim() == 2 else input.reshape(1, -1)
    if fweights is None and aweights is None:
        count = rows.shape[1]
        centered = rows - rows.sum(1, keepdim=True) / count
        return (centered @ centered.mH / torch.sym_max(count - correction, 0)).squeeze()
    given = [weights for weights in (fweights, aweights) if weights is not None]
    if any(weights.shape != rows.shape[1:] for weights in given):
        return NotImplemented
    if fweights is not None and fweights.is_floating_point():
        return NotImplemented
    if aweights is not None and not aweights.is_floating_point():
        return NotImplemented
    weights = given[0] * given[1] if len(given) > 1 else given[0]
    negative = torch.stack([(each < 0).any() for each in given]).any()
    total = weights.sum()
    total = torch.where(negative | (total == 0), torch.nan, total)
    centered = rows - (rows * weights).sum(1, keepdim=True) / total
    norm = total - (correction if aweights is None else correction * (weights * aweights).sum() / total)
    return (centered * weights @ centered.mH / norm.clamp(min=0)).squeeze()


def _corrcoef(input: Tensor) -> Any:
    """Return the correlation coefficients of rows, in [-1, 1]."""
    covariance = _cov(input)
    if covariance is NotImplemented or covariance.is_complex():
        return NotImplemented
    if covariance.dim() == 0:
        return covariance / covariance
    deviation = covariance.diagonal().sqrt()
    return (covariance / deviation[:, None] / deviation).clip(-1, 1)


def _combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    """Return the combinations of elements, whose positions a known size decides."""
    if input.dim() != 1 or not isinstance(input.shape[0], int) or r < 1:
        return NotImplemented
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    positions = list(choose(range(input.shape[0]), r))
    return input[torch.tensor(positions, dtype=torch.int64, device=input.device).reshape(-1, r)]


def _index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, **_: Any) -> Any:
    """Raise what eager PyTorch does for slices of another shape, which torch.export does not check."""
    pairs = [
        (a, b) for axis, (a, b) in enumerate(zip(input.shape, source.shape, strict=False)) if axis != dim % input.dim()
    ]
    if input.dim() == source.dim() and all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int)):
        return NotImplemented
    shapes = f"self.shape = {[*input.shape]} source.shape = {[*source.shape]}"
    raise RuntimeError(
        f"source tensor shape must match self tensor shape, excluding the specified dimension. Got {shapes}"
    )


_IN_PYTHON: dict[Any, Callable[..., Any]] = {
    Tensor.__getitem__: get_item,
    Tensor.__setitem__: set_item,
    **dict.fromkeys((torch.index_add, Tensor.index_add, Tensor.index_add_), _index_add),
    **dict.fromkeys((torch.diff, Tensor.diff), diff),
    **dict.fromkeys((torch.cummax, Tensor.cummax), partial(cumulative, torch.cummax)),
    **dict.fromkeys((torch.cummin, Tensor.cummin), partial(cumulative, torch.cummin)),
    torch.cdist: cdist,
    F.max_pool1d: _max_pool1d,
    torch.max_pool1d: _max_pool1d,
    torch.linspace: _linspace,
    torch.tensor: tensor,
    torch.as_tensor: tensor,
    torch.cov: _cov,
    Tensor.cov: _cov,
    torch.corrcoef: _corrcoef,
    Tensor.corrcoef: _corrcoef,
    torch.combinations: _combinations,
    torch.ctc_loss: ctc_loss,
    F.ctc_loss: ctc_loss,
}

WITH_DYNAMIC_SIZES = {
    "linspace": "start + (end - start) / (n - 1) * torch.arange(n)",
    "logspace": "base ** (start + (end - start) / (n - 1) * torch.arange(n))",
    "hann_window": "0.5 - 0.5 * torch.cos(2 * torch.pi / n * torch.arange(n))",
    "hamming_window": "0.54 - 0.46 * torch.cos(2 * torch.pi / n * torch.arange(n))",
    "bartlett_window": "1 - torch.abs(2 / n * torch.arange(n) - 1)",
    "blackman_window": (
        "0.42 - 0.5 * torch.cos(2 * torch.pi / n * torch.arange(n))"
        " + 0.08 * torch.cos(4 * torch.pi / n * torch.arange(n))"
    ),
    "kaiser_window": (
        "torch.i0(12 * torch.sqrt(1 - (2 / n * torch.arange(n) - 1) ** 2)) / torch.i0(torch.tensor(12.0))"
    ),
    "tril_indices": "torch.ones(n, m).tril().nonzero().T",
    "triu_indices": "torch.ones(n, m).triu().nonzero().T",
    "fft_fftfreq": "(torch.arange(n) - n * (torch.arange(n) >= (n + 1) // 2)) / n",
    "fft_rfftfreq": "torch.arange(n // 2 + 1) / n",
    "vander": "torch.flip(x[:, None] ** torch.arange(n), [1])",
}
"""Equal expressions of functions that take sizes as numbers, for errors; ``n`` is the dynamic size, ``m`` another."""
