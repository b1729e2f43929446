"""Meshes of devices as values, their text form, and a process group for exports of one rank without the others."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fx_importer.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

_AXIS = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<size>[1-9]\d*)")

Groups = tuple[tuple[int, ...], ...]
"""Groups of devices, which partition all devices of a mesh."""


@dataclass(frozen=True)
class Mesh:
    """A mesh whose devices are numbered in row-major order; the text form of one is ``dp=2,tp=4``."""

    axes: tuple[tuple[str, int], ...]
    """Names and sizes."""

    @classmethod
    def get(cls, mesh: Any) -> Self:
        """Return the mesh of a text or of a ``torch.distributed.DeviceMesh``.

        Raises:
            UsageError: for any other value, and for a `DeviceMesh` whose devices have another order.
        """
        if isinstance(mesh, cls):
            return mesh
        if isinstance(mesh, str):
            return cls._parsed(mesh)
        ranks = getattr(mesh, "mesh", None)
        if ranks is None:
            raise UsageError(f"mesh={mesh!r} is not a mesh: pass a DeviceMesh, or axes and sizes as 'dp=2,tp=4'")
        if ranks.flatten().tolist() != list(range(_world_size(ranks.numel()))):
            raise UsageError(
                f"the mesh has the ranks {ranks.tolist()}: a mesh has all ranks in row-major order, as "
                "init_device_mesh makes it; of a part of a mesh, pass the whole one"
            )
        names = mesh.mesh_dim_names or [f"dim_{axis}" for axis in range(ranks.ndim)]
        return cls(tuple(zip(names, ranks.shape, strict=True)))

    @classmethod
    def _parsed(cls, text: str) -> Self:
        matches = [_AXIS.fullmatch(part.strip()) for part in text.split(",")]
        axes = tuple((axis["name"], int(axis["size"])) for axis in matches if axis)
        if len(axes) != len(matches) or len(dict(axes)) != len(axes):
            raise UsageError(f"mesh={text!r} is not a mesh: write different axes with their sizes, as 'dp=2,tp=4'")
        return cls(axes)

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(size for _, size in self.axes)

    def groups(self, names: Sequence[str]) -> Groups:
        """Return the groups of devices whose places differ along the axes ``names`` only."""
        members: dict[tuple[int, ...], list[int]] = {}
        places = itertools.product(*(range(size) for _, size in self.axes))
        for device, place in enumerate(places):
            others = tuple(at for at, (name, _) in zip(place, self.axes, strict=True) if name not in names)
            members.setdefault(others, []).append(device)
        return tuple(map(tuple, members.values()))

    def axes_of(self, ranks: Sequence[int]) -> tuple[str, ...] | None:
        """Return the axes whose groups have ``ranks``, in this order, as one of them; None if there are none.

        Axes of size 1 belong to no group.
        """
        names = [name for name, size in self.axes if size > 1]
        subsets = itertools.chain.from_iterable(itertools.combinations(names, count) for count in range(len(names) + 1))
        return next((subset for subset in subsets if tuple(ranks) in self.groups(subset)), None)


def _world_size(default: int) -> int:
    import torch.distributed

    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else default


@contextmanager
def fake_process_group(size: int, rank: int = 0) -> Iterator[None]:
    """Make this process the ``rank`` of ``size`` ranks, whose collectives compute nothing, as torch's tests do.

    Raises:
        UsageError: if this process has a process group already.
    """
    import torch.distributed

    if torch.distributed.is_initialized():
        raise UsageError("this process has a process group already: end it first, with destroy_process_group")
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()
