"""A worker process that is started on demand and restarted after a crash."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from fx_importer.process.worker import Child

C = TypeVar("C", bound=Child)


class RestartingWorker(Generic[C]):
    """At most one running `Child`, which ``start`` returns. State of a crashed one is lost."""

    def __init__(self, start: Callable[[], C]):
        self._start = start
        self._child: C | None = None
        self._starting = threading.Lock()

    def running(self) -> C:
        """Return the child; a new one if none was started, or if the last one has ended."""
        with self._starting:
            if self._child is None or not self._child.alive:
                self._child = self._start()
            return self._child
