"""Temporary directories with the lifetime of an object."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


class Scratch:
    """A new temporary directory, removed with this object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="fx-importer-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
