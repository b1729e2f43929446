"""Temporary directories with the lifetime of an object."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

SCRATCH = "FX_IMPORTER_SCRATCH"
"""The environment variable of a child process with the directory of its `Scratch` objects, which its parent removes."""


class Scratch:
    """A new temporary directory, removed with this object; in a `Child` that is killed, removed by its parent."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="fx-importer-", dir=os.environ.get(SCRATCH)))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
