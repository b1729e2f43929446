"""Packed sequences under assumptions: their lengths are the example's, and recurrent layers run on padded batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor


class _BatchSize(int):
    """A batch size in the place of a tensor with one element, which functions take as a size."""

    def item(self) -> int:
        """Return the number."""
        return int(self)


_LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


class PackedSequences:
    """The functions of torch that pack and read sequences, for tensors whose lengths Python knows.

    Packed elements are in the order of time steps, and each step has the sequences that are as long, longest first.
    """

    def __init__(self) -> None:
        self._lengths: dict[int, tuple[Tensor, list[int]]] = {}
        """The lengths, longest first, by the id of the tensor of batch sizes."""

    def replaced(self, function: Any) -> Callable[..., Any] | None:
        """Return what computes ``function``; None if it has nothing to do with packed sequences."""
        name = getattr(function, "__name__", "")
        if name in _LAYERS:
            return lambda *args: self._layer(function, *args)
        others = {"_pack_padded_sequence": self._pack, "_pad_packed_sequence": self._pad, "__getitem__": self._item}
        return others.get(name)

    def _pack(self, padded: Tensor, lengths: Tensor, batch_first: bool) -> Any:
        numbers: list[int] = [int(number) for number in lengths.tolist()]  # each is a question
        if numbers != sorted(numbers, reverse=True):
            raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True")
        if min(numbers) < 1:
            raise RuntimeError("Length of all samples has to be greater than 0")
        steps = padded.transpose(0, 1) if batch_first else padded
        if len(numbers) != steps.shape[1] or numbers[0] > steps.shape[0]:
            raise RuntimeError(f"lengths {numbers} do not fit a padded batch of {steps.shape[1]} x {steps.shape[0]}")
        counts = [sum(number > step for number in numbers) for step in range(numbers[0])]
        sizes = torch.tensor(counts)
        self._lengths[id(sizes)] = sizes, numbers
        return _packed(steps, counts), sizes

    def _known(self, sizes: Any) -> list[int] | None:
        return self._lengths[id(sizes)][1] if id(sizes) in self._lengths else None

    def _item(self, tensor: Tensor, index: Any) -> Any:
        """Read a batch size as a number, since functions take it as a size."""
        numbers = self._known(tensor)
        if numbers is None or type(index) is not int or not -numbers[0] <= index < numbers[0]:
            return NotImplemented
        return _BatchSize(sum(number > index % numbers[0] for number in numbers))

    def _pad(self, data: Tensor, sizes: Tensor, batch_first: bool, padding: float, total: int) -> Any:
        numbers = self._known(sizes)
        if numbers is None:
            return NotImplemented
        steps = _padded(data, numbers, padding, max(int(total), numbers[0]))
        return steps.transpose(0, 1) if batch_first else steps, torch.tensor(numbers)

    def _layer(self, function: Any, data: Tensor, sizes: Any, hidden: Any, weights: Any, *rest: Any) -> Any:
        """Run a layer on the sequences of each length, which are as many rows of one batch."""
        numbers = self._known(sizes)
        if numbers is None:
            return NotImplemented
        steps = _padded(data, numbers, 0.0, numbers[0])
        states = hidden if isinstance(hidden, tuple | list) else (hidden,)
        outputs, ends, first = list[Tensor](), list[Sequence[Tensor]](), 0
        for length, group in groupby(numbers):
            rows = slice(first, first := first + len(list(group)))
            start = [state[:, rows] for state in states]
            output, *end = function(
                steps[:length, rows],
                tuple(start) if isinstance(hidden, tuple | list) else start[0],
                weights,
                *rest,
                False,
            )
            outputs.append(torch.nn.functional.pad(output, (0, 0, 0, 0, 0, numbers[0] - length)))
            ends.append(end)
        counts = [sum(number > step for number in numbers) for step in range(numbers[0])]
        return _packed(torch.cat(outputs, 1), counts), *(torch.cat(parts, 1) for parts in zip(*ends, strict=True))


def _packed(steps: Tensor, counts: Sequence[int]) -> Tensor:
    """Return the first ``counts`` rows of each of ``steps``, [time, batch, ...]."""
    return torch.cat([steps[step, :count] for step, count in enumerate(counts)])


def _padded(data: Tensor, lengths: Sequence[int], padding: float, total: int) -> Tensor:
    """Return packed elements as [total, batch, ...]."""
    steps, first = list[Tensor](), 0
    for step in range(total):
        count = sum(length > step for length in lengths)
        rest = data.new_full((len(lengths) - count, *data.shape[1:]), padding)
        steps.append(torch.cat([data[first : first + count], rest]))
        first += count
    return torch.stack(steps)
