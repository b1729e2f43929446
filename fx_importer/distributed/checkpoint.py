"""Parts of the tensors in a folder that ``torch.distributed.checkpoint`` has written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from fx_importer.distributed.checkpoint_index import Chunk, StoredTensor, read_index
from fx_importer.errors import UsageError, first_line
from fx_importer.fx_graph.program_files import read_objects


class Checkpoint:
    """Whole tensors by name, read by slices, whatever parts they were written in.

    The pickles of the folder are read as plain data: no class or function that they name is looked up.

    Raises `UsageError` if the folder is not a checkpoint.
    """

    def __init__(self, path: str | os.PathLike[str]):
        try:
            self.tensors: Mapping[str, StoredTensor] = read_index(Path(path))
            """What is known of each tensor, by name."""
        except (OSError, ValueError) as error:
            raise UsageError(f"'{os.fspath(path)}' is not a checkpoint of torch.distributed: {error}") from None

    def __getitem__(self, name: str) -> _Tensor:
        return _Tensor(self, name)

    def read(self, name: str, offsets: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
        """Return the part of a tensor at ``offsets``, of shape ``sizes``."""
        start, shape = tuple(offsets), tuple(sizes)
        stored = self.tensors[name]
        parts = [(chunk, chunk.overlap(start, shape)) for chunk in stored.chunks]
        boxes = [box for _, box in parts if box is not None]
        elements = sum(torch.Size([bound.stop - bound.start for bound in box]).numel() for box in boxes)
        if elements != torch.Size(shape).numel():
            raise UsageError(f"the checkpoint does not have all of '{name}'")
        part, filled = torch.empty(shape, dtype=stored.dtype), torch.zeros(shape, dtype=torch.bool)
        for chunk, box in parts:
            if box is not None:
                tensor = _read_chunk(chunk, name, stored.dtype)
                part[_moved(box, start)] = tensor[_moved(box, chunk.offsets)]
                filled[_moved(box, start)] = True
        if not filled.all():  # some parts overlap
            raise UsageError(f"the checkpoint does not have all of '{name}'")
        return part


def _moved(box: tuple[slice, ...], origin: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(bound.start - at, bound.stop - at) for bound, at in zip(box, origin, strict=True))


def _read_chunk(chunk: Chunk, name: str, dtype: torch.dtype) -> torch.Tensor:
    try:
        with chunk.file.open("rb") as file:
            file.seek(chunk.offset)
            tensor = read_objects(file.read(chunk.length))
    except Exception as error:  # of torch.load, of any type
        raise UsageError(f"'{chunk.file}' does not hold its part of '{name}': {first_line(error)}") from None
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != dtype or tuple(tensor.shape) != chunk.sizes:
        raise UsageError(f"'{chunk.file}' does not hold its part of '{name}': it has another type")
    return tensor.detach()


class _Tensor:
    """A tensor of a checkpoint, which is read when it is sliced."""

    def __init__(self, checkpoint: Checkpoint, name: str):
        self._checkpoint, self._name = checkpoint, name

    def get_shape(self) -> list[int]:
        return list(self._checkpoint.tensors[self._name].size)

    def __getitem__(self, bounds: tuple[slice, ...]) -> torch.Tensor:
        offsets = [bound.start for bound in bounds]
        return self._checkpoint.read(self._name, offsets, [bound.stop - bound.start for bound in bounds])
