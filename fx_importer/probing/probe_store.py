"""On-disk cache of probe results."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import platformdirs

from fx_importer.probing.search import LoweringFailure

_PACKAGES = ("mlir", "pipelines", "rewrites", "probing")
"""The packages whose sources decide the outcome."""


class ProbeStore:
    """Table of results by pipeline and module, in one file for each state of the package and the wheel.

    Several processes may use it. Errors when writing it are ignored.
    """

    def __init__(self, directory: Path | None = None):
        """``directory`` is the user's cache directory by default."""
        directory = directory or platformdirs.user_cache_path("fx_importer")
        self._path = directory / f"probes-{_state()}.sqlite"

    def get(self, pipeline: str, module: str) -> tuple[bool, LoweringFailure | None]:
        """Return whether a result is stored, and the failure, if it was one."""
        try:
            with closing(self._connected()) as table:
                row = table.execute(
                    "SELECT stage, reason FROM outcomes WHERE key = ?", (_key(pipeline, module),)
                ).fetchone()
        except (sqlite3.Error, OSError):
            return False, None
        return row is not None, LoweringFailure(*row) if row and row[0] is not None else None

    def put(self, pipeline: str, module: str, failure: LoweringFailure | None) -> None:
        """Store a result."""
        row = (failure.stage, failure.reason) if failure else (None, None)
        try:
            with closing(self._connected()) as table, table:
                table.execute("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?)", (_key(pipeline, module), *row))
        except (sqlite3.Error, OSError):
            pass

    def _connected(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        table = sqlite3.connect(self._path, timeout=10)
        table.execute("CREATE TABLE IF NOT EXISTS outcomes (key BLOB PRIMARY KEY, stage TEXT, reason TEXT)")
        return table


def _key(pipeline: str, module: str) -> bytes:
    return hashlib.sha256(f"{pipeline}\0{module}".encode()).digest()


def _state() -> str:
    """Return a digest of the wheel's version and of this package's files."""
    root = Path(__file__).parents[1]
    files = sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py"))
    seen = [(str(path.relative_to(root)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr((version("torch-mlir"), seen)).encode()).hexdigest()[:16]
