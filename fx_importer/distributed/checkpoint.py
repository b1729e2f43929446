"""Parts of the tensors in a folder that ``torch.distributed.checkpoint`` has written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fx_importer.errors import UsageError


class Checkpoint:
    """Whole tensors by name, read by slices, whatever parts they were written in.

    Raises `UsageError` if the folder is not a checkpoint.
    """

    def __init__(self, path: str | os.PathLike[str]):
        from torch.distributed.checkpoint.filesystem import FileSystemReader
        from torch.distributed.checkpoint.metadata import TensorStorageMetadata

        self._reader = FileSystemReader(path)
        try:
            self._metadata = self._reader.read_metadata()
        except (OSError, RuntimeError) as error:
            raise UsageError(f"'{os.fspath(path)}' is no checkpoint of torch.distributed: {error}") from error
        self._reader.set_up_storage_reader(self._metadata, is_coordinator=True)
        described = self._metadata.state_dict_metadata.items()
        self.tensors: Mapping[str, Any] = {
            name: each for name, each in described if isinstance(each, TensorStorageMetadata)
        }
        """What is known of each tensor, by name."""

    def __getitem__(self, name: str) -> _Tensor:
        return _Tensor(self, name)

    def read(self, name: str, offsets: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
        """Return the part of a tensor at ``offsets``, of shape ``sizes``."""
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
        from torch.distributed.checkpoint.planner import LoadPlan
        from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

        described = self.tensors[name]
        part = torch.empty(tuple(sizes), dtype=described.properties.dtype)
        chunk = ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
        items = create_read_items_for_chunk_list(name, described, [chunk])
        if sum(torch.Size(each.lengths).numel() for each in items) != part.numel():
            raise UsageError(f"the checkpoint does not have all of '{name}'")
        planner: Any = _Planner(part)
        self._reader.read_data(LoadPlan(items), planner).wait()
        return part


class _Planner:
    """Says where the reader puts what it reads."""

    def __init__(self, part: torch.Tensor):
        self._part = part

    def resolve_tensor(self, item: Any) -> torch.Tensor:
        bounds = zip(item.dest_offsets, item.lengths, strict=True)
        return self._part[tuple(slice(offset, offset + length) for offset, length in bounds)]

    def commit_tensor(self, item: Any, tensor: torch.Tensor) -> None:
        """The reader has written to the view that `resolve_tensor` returned."""


class _Tensor:
    """A tensor of a checkpoint, which is read when it is sliced."""

    def __init__(self, checkpoint: Checkpoint, name: str):
        self._checkpoint, self._name = checkpoint, name

    def get_shape(self) -> list[int]:
        return list(self._checkpoint.tensors[self._name].size)

    def __getitem__(self, bounds: tuple[slice, ...]) -> torch.Tensor:
        offsets = [each.start for each in bounds]
        return self._checkpoint.read(self._name, offsets, [each.stop - each.start for each in bounds])
