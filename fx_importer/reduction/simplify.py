"""Simplification of a short program: static shapes, no weights, small sizes, plain values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fx_importer.reduction.program_source import Fill, Line, Listing, Tensor, resized
from fx_importer.verification.python_source import Raw

Persists = Callable[[Listing], bool]


def simplified(listing: Listing, persists: Persists, *, numbers: bool) -> Listing:
    """Return the simplest form of ``listing`` found with which the failure ``persists``.

    If the failure depends on ``numbers``, tensors keep their values unless plain ones reproduce it.
    """
    for step in (_static, _without_weights, _shared, _small, _plain if numbers else _as_they_are):
        for candidate in _until_none(step, listing, persists):
            listing = candidate
    return listing


Step = Callable[[Listing], Iterator[Listing]]
"""Yields candidates for a simpler program, the simplest first."""


def _until_none(step: Step, listing: Listing, persists: Persists) -> Iterator[Listing]:
    """Yield each simpler program found, until no candidate of ``step`` reproduces the failure."""
    tried = {_key(listing)}
    simpler: Listing | None = listing
    while simpler is not None:
        candidates = (listing_ for listing_ in step(simpler) if _key(listing_) not in tried)
        simpler = None
        for candidate in candidates:
            tried.add(_key(candidate))
            if persists(candidate):
                simpler = candidate
                yield candidate
                break


def _key(listing: Listing) -> tuple[str, str]:
    return str(listing), listing.signature  # the source has no shapes of saved tensors


def _as_they_are(_listing: Listing) -> Iterator[Listing]:
    yield from ()


def _static(listing: Listing) -> Iterator[Listing]:
    if listing.dynamic_shapes:
        yield listing.mapped(lambda program: dataclasses.replace(program, dynamic=()))
        for name in [tensor.name for tensor in listing.tensors if tensor.dynamic]:
            yield _changed(listing, name, lambda program: dataclasses.replace(program, dynamic=()))


def _without_weights(listing: Listing) -> Iterator[Listing]:
    weights = [tensor.name for tensor in listing.tensors if tensor.weight]
    if weights:
        yield listing.mapped(lambda tensor: dataclasses.replace(tensor, weight=False))
        for name in weights:
            yield _changed(listing, name, lambda tensor: dataclasses.replace(tensor, weight=False))


def _shared(listing: Listing) -> Iterator[Listing]:
    """Yield candidates with two tensors of the same type replaced by one."""
    first: dict[object, str] = {}
    for tensor in listing.tensors:
        kind = (tensor.shape, tensor.data.dtype, tensor.weight, tensor.dynamic)
        if kind in first:
            yield _renamed(listing, tensor.name, first[kind])
        else:
            first[kind] = tensor.name


def _small(listing: Listing) -> Iterator[Listing]:
    """Yield candidates with each size reduced everywhere it occurs; then on each axis separately."""
    sizes = sorted({size for tensor in listing.tensors for size in tensor.shape if size > 1}, reverse=True)
    for size in sizes:
        for smaller in _smaller(size):
            shrunk = listing.mapped(lambda line, size=size, smaller=smaller: _cropped(line, _to(size, smaller)))
            lines = tuple(resized(line, _to(size, smaller)) for line in listing.lines)
            yield dataclasses.replace(shrunk, lines=lines)
            yield shrunk
    for tensor in listing.tensors:
        for axis, size in enumerate(tensor.shape):
            for smaller in _smaller(size):
                yield _changed(
                    listing,
                    tensor.name,
                    lambda it, axis=axis, n=smaller: dataclasses.replace(it, data=_narrow(it, axis, n)),
                )


def _smaller(size: int) -> list[int]:
    return [count for count in dict.fromkeys((1, 2, 3, 4, size // 2)) if 0 < count < size]


def _to(size: int, smaller: int) -> Callable[[int], int]:
    return lambda item: smaller if item == size else item


def _cropped(tensor: Tensor, change: Callable[[int], int]) -> Tensor:
    for axis, size in enumerate(tensor.shape):
        tensor = dataclasses.replace(tensor, data=_narrow(tensor, axis, change(size)))
    return tensor


def _narrow(tensor: Tensor, axis: int, size: int) -> torch.Tensor:
    size = max(size, 2) if axis in tensor.dynamic else size  # torch.export specializes sizes 0 and 1
    return tensor.data.narrow(axis, 0, min(size, tensor.shape[axis]))


def _plain(listing: Listing) -> Iterator[Listing]:
    """Yield candidates with plain values instead of the original ones; failing that, with a few values as literals."""
    for fill in (Fill.ONES, Fill.RANDOM):
        yield listing.mapped(lambda line, fill=fill: _filled(line, fill))
    for tensor in listing.tensors:
        if tensor.fill is Fill.SAVED:
            for fill in (Fill.ONES, Fill.RANDOM, Fill.LITERAL):
                yield _changed(listing, tensor.name, lambda it, fill=fill: _filled(it, fill))


def _filled(tensor: Tensor, fill: Fill) -> Tensor:
    usable = tensor.fill is Fill.SAVED and tensor.can_be(fill)
    return dataclasses.replace(tensor, fill=fill) if usable else tensor


def _changed(listing: Listing, name: str, change: Callable[[Tensor], Tensor]) -> Listing:
    return listing.mapped(lambda line: change(line) if line.name == name else line)


def _renamed(listing: Listing, name: str, other: str) -> Listing:
    """Return ``listing`` with ``other`` in place of the tensor ``name``."""

    def swap(value: Any) -> Any:
        if isinstance(value, Raw):
            return Raw(other) if value == name else value
        if isinstance(value, list | tuple):
            return [swap(item) for item in value]
        return value

    lines = tuple(
        Line(
            line.name,
            line.target,
            tuple(map(swap, line.args)),
            {key: swap(value) for key, value in line.kwargs.items()},
        )
        for line in listing.lines
    )
    return dataclasses.replace(listing, tensors=tuple(t for t in listing.tensors if t.name != name), lines=lines)
