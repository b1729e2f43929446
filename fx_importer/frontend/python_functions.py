"""Functions of torch whose C++ code reads sizes or values, as equal functions in Python that torch.export can trace."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import SymFloat, SymInt, Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.overrides import TorchFunctionMode


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


def _set_item(x: Tensor, index: Any, value: Any) -> Any:
    """Write at tensors of rank 0 as at their items, which stay symbolic: torch's C++ code takes the example's."""
    if (selected := _at_items(x, index)) is None:
        return NotImplemented
    part, rest = selected
    part[rest] = value
    return None


def _get_item(x: Tensor, index: Any) -> Any:
    """Read as `_set_item` writes; torch keeps the items symbolic where no list or tensor of indices is beside them."""
    if not isinstance(index, tuple) or all(_axes(each) is None for each in index):
        return NotImplemented
    selected = _at_items(x, index)
    return NotImplemented if selected is None else selected[0][selected[1]]


def _at_items(x: Tensor, index: Any) -> tuple[Tensor, Any] | None:
    """Return the view of ``x`` at the basic indices, which torch applies first, and the index of the others in it."""
    indices = index if isinstance(index, tuple) else (index,)
    if not any(map(_is_number, indices)) or not all(_is_basic(each) or _axes(each) is not None for each in indices):
        return None
    part, axis, rest = x, 0, []
    for each in indices:
        if each is ...:
            number = sum(_axes(other) or other is not None for other in indices if other is not ...)
            axis += x.dim() - number
            rest += [slice(None)] * (x.dim() - number)
        elif each is None:
            part, axis = part.unsqueeze(axis), axis + 1
            rest.append(slice(None))
        elif isinstance(each, slice):
            part, axis = part[(slice(None),) * axis + (each,)], axis + 1
            rest.append(slice(None))
        elif (axes := _axes(each)) is not None:
            axis += axes
            rest.append(each)
        else:
            number: Any = each.item() if isinstance(each, Tensor) else each
            part = part.select(axis, number)
    return part, tuple(rest) if any(_axes(each) is not None for each in rest) else ...


_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


def _is_number(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dim() == 0 and index.dtype in _INTEGERS


def _is_basic(index: Any) -> bool:
    return (
        index is None or index is ... or isinstance(index, slice) or type(index) in (int, SymInt) or _is_number(index)
    )


def _axes(index: Any) -> int | None:
    """Return the number of axes that a tensor or list of indices, or a mask, takes."""
    if isinstance(index, Tensor) and index.dim():
        return 1 if index.dtype in _INTEGERS else index.dim() if index.dtype is torch.bool else None
    return 1 if isinstance(index, list) and index and all(type(each) in (int, bool) for each in index) else None


def _diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Any:
    """Return differences along an axis whose size depends on values, of which there are none without elements."""
    if not _is_unknown(input, dim) or input.dtype == torch.bool:
        return NotImplemented
    x = torch.cat([part for part in (prepend, input, append) if part is not None], dim)
    for _ in range(n):
        number: Any = torch.sym_max(x.shape[dim] - 1, 0)
        x = x.narrow(dim, x.shape[dim] - number, number) - x.narrow(dim, 0, number)
    return x


def _cumulative(function: Callable[..., Any], input: Tensor, dim: int) -> Any:
    """Return ``cummax`` or ``cummin`` along an axis whose size depends on values, with one more row on the way."""
    if not _is_unknown(input, dim):
        return NotImplemented
    results = [part.narrow(dim, 0, input.shape[dim]) for part in function(_with_a_row(input, dim), dim)]
    return getattr(torch.return_types, function.__name__)(results)


def _cdist(x1: Tensor, x2: Tensor, *options: Any, **keywords: Any) -> Any:
    """Return distances between rows whose number depends on values, with one more row on the way."""
    numbers = [x.shape[-2] if x.dim() > 1 and _is_unknown(x, -2) else None for x in (x1, x2)]
    if numbers == [None, None]:
        return NotImplemented
    a, b = (x if number is None else _with_a_row(x, -2) for x, number in zip((x1, x2), numbers, strict=True))
    distances = torch.cdist(a, b, *options, **keywords)
    for axis, number in zip((-2, -1), numbers, strict=True):
        distances = distances if number is None else distances.narrow(axis, 0, number)
    return distances


def _is_unknown(x: Tensor, dim: int) -> bool:
    """Return whether the size of an axis depends on values: torch asks there whether a tensor is empty."""
    return bool(x.dim() and isinstance(size := x.shape[dim], SymInt) and free_unbacked_symbols(size))


def _with_a_row(x: Tensor, dim: int) -> Tensor:
    sizes = list(x.shape)
    sizes[dim] = 1
    return torch.cat([x, x.new_zeros(sizes)], dim)


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


_IMPOSSIBLE = -1e30
"""The logarithm of the probability 0: of -inf, gradients would be NaN."""


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> Any:
    """Return the negative logarithm of the probability of ``targets``, as `torch.nn.functional.ctc_loss` does.

    ``log_probs`` are [steps, batch, classes] or [steps, classes]; ``targets`` [batch, labels], or one after the other.
    The gradients are torch's too; NaN stands for lengths that torch refuses. The loop over steps is unrolled. Returns
    NotImplemented for other calls that torch refuses, and for a dynamic number of steps. Reference: Graves et al.,
    Connectionist Temporal Classification (2006), section 4.1.
    """
    steps, classes = log_probs.shape[0], log_probs.shape[-1]
    if log_probs.dim() not in (2, 3) or isinstance(steps, SymInt) or not 0 <= blank < classes or not steps:
        return NotImplemented
    if log_probs.dtype not in (torch.float32, torch.float64) or targets.dtype not in (torch.int32, torch.int64):
        return NotImplemented
    scores = log_probs if log_probs.dim() == 3 else log_probs.unsqueeze(1)
    counts, ends = (_lengths(lengths, scores) for lengths in (target_lengths, input_lengths))
    if counts is None or ends is None or targets.dim() not in (1, log_probs.dim() - 1):
        return NotImplemented
    if reduction not in ("none", "mean", "sum", 0, 1, 2):
        return NotImplemented
    fit = counts.sum() == targets.shape[0] if targets.dim() == 1 else torch.all(counts <= targets.shape[1])
    fit = fit & torch.all((counts >= 0) & (ends >= 0) & (ends <= steps))
    states = _states(targets, counts, blank)
    losses = -_log_likelihood(scores, states, counts, ends)
    impossible = losses > -0.1 * _IMPOSSIBLE
    if log_probs.requires_grad:  # torch's gradient is the one of scores before log_softmax; the value is 0
        read = torch.arange(steps, device=scores.device).unsqueeze(1) < ends
        probabilities = torch.where(read.unsqueeze(2), scores.exp(), 0.0)
        losses = losses + (probabilities - probabilities.detach()).sum((0, 2))
    infinite = torch.where(impossible, torch.inf, 1.0).to(losses.dtype)
    losses = torch.where(impossible, 0.0, losses) if zero_infinity else losses * infinite
    losses = torch.where(fit, losses, torch.nan)
    if reduction in ("mean", 1):
        return (losses / counts.clamp(min=1)).mean()
    if reduction in ("sum", 2):
        return losses.sum()
    return losses if log_probs.dim() == 3 else losses.squeeze(0)


def _lengths(lengths: Any, scores: Tensor) -> Tensor | None:
    """Return ``lengths`` of a batch as a tensor; None if they are not as many."""
    if isinstance(lengths, Sequence | int):
        lengths = torch.tensor(lengths, dtype=torch.int64, device=scores.device)
    flat = lengths.reshape(-1)
    return flat if flat.shape[0] == scores.shape[1] and not flat.is_floating_point() else None


def _states(labels: Tensor, counts: Tensor, blank: int) -> Tensor:
    """Return the labels of a sequence with blanks around them, [batch, 2 * labels + 1]."""
    position = torch.arange(labels.shape[-1], device=labels.device)
    if labels.dim() == 1:  # one sequence after the other
        start = counts.cumsum(0) - counts
        labels = labels[(start.unsqueeze(1) + position).clamp(max=labels.shape[0] - 1)]
    padded = torch.where(position < counts.unsqueeze(1), labels.long(), blank)
    return F.pad(torch.stack([torch.full_like(padded, blank), padded], 2).flatten(1), (0, 1), value=blank)


def _log_likelihood(scores: Tensor, states: Tensor, counts: Tensor, ends: Tensor) -> Tensor:
    """Return the logarithm of the sum over all alignments, by the forward variables of the states."""
    width = states.shape[1]
    labelled = scores.gather(2, states.expand(scores.shape[0], -1, -1))
    skips = states != F.pad(states, (2, 0), value=-1)[:, :width]
    place = torch.arange(width, device=scores.device)
    begins = (place < 2) & (place <= 2 * counts.unsqueeze(1))
    alpha = torch.where(begins, labelled[0], _IMPOSSIBLE)
    for step in range(1, scores.shape[0]):
        before = F.pad(alpha, (2, 0), value=_IMPOSSIBLE)
        skipped = torch.where(skips, before[:, :width], _IMPOSSIBLE)
        reached = torch.stack([alpha, before[:, 1 : width + 1], skipped]).logsumexp(0) + labelled[step]
        alpha = torch.where((step < ends).unsqueeze(1), reached, alpha)
    last = (place == 2 * counts.unsqueeze(1)) | (place == 2 * counts.unsqueeze(1) - 1)
    likelihood = torch.where(last, alpha, _IMPOSSIBLE).logsumexp(1)
    return torch.where(ends > 0, likelihood, torch.where(counts > 0, _IMPOSSIBLE, 0.0))


_IN_PYTHON: dict[Any, Callable[..., Any]] = {
    Tensor.__getitem__: _get_item,
    Tensor.__setitem__: _set_item,
    **dict.fromkeys((torch.index_add, Tensor.index_add, Tensor.index_add_), _index_add),
    **dict.fromkeys((torch.diff, Tensor.diff), _diff),
    **dict.fromkeys((torch.cummax, Tensor.cummax), partial(_cumulative, torch.cummax)),
    **dict.fromkeys((torch.cummin, Tensor.cummin), partial(_cumulative, torch.cummin)),
    torch.cdist: _cdist,
    F.max_pool1d: _max_pool1d,
    torch.max_pool1d: _max_pool1d,
    torch.linspace: _linspace,
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
