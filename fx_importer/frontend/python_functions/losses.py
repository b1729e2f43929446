"""The loss of connectionist temporal classification, ``ctc_loss``, whose C++ code reads lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import SymInt, Tensor

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
