"""A process group of a rank without the other ranks, in which programs of several devices can be exported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed

from fx_importer.errors import UsageError


@contextmanager
def fake_process_group(size: int, rank: int = 0) -> Iterator[None]:
    """Make this process the ``rank`` of ``size`` ranks, whose collectives compute nothing, as torch's tests do.

    Raises:
        UsageError: if this process has a process group already.
    """
    if torch.distributed.is_initialized():
        raise UsageError("this process has a process group already: end it first, with destroy_process_group")
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()
