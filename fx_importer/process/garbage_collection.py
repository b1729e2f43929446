"""The garbage collector, out of the way of work that makes many objects and leaves few."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage in the body: each collection would visit all nodes of all graphs that are there, and torch."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
