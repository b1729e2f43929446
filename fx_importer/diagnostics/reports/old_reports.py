"""Removal of old report directories among temporary files."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

PREFIX, SUFFIX = "fx-importer-", "-failed-"
"""A report directory is called ``fx-importer-STAGE-failed-RANDOM``."""

MAX_REPORTS = 20
MAX_BYTES = 200_000_000


def remove_old_reports(newest: Path) -> None:
    """Remove the oldest of the user's reports other than ``newest``, down to `MAX_REPORTS` and `MAX_BYTES`.

    ``newest`` itself is kept. Links, and directories of other users, are not touched.
    """
    reports: list[tuple[float, Path]] = []
    for path in newest.parent.glob(f"{PREFIX}*{SUFFIX}*"):
        with suppress(OSError):  # another process removes it
            status = path.lstat()
            if not path.is_symlink() and path.is_dir() and status.st_uid == os.getuid() and path != newest:
                reports.append((status.st_mtime, path))
    total = _size(newest)
    for number, (_, path) in enumerate(sorted(reports, reverse=True), start=2):
        total += _size(path)
        if number > MAX_REPORTS or total > MAX_BYTES:
            shutil.rmtree(path, ignore_errors=True)


def _size(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total
