"""The text of source lines that stack traces and locations name."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path


def source_line(file: str, line: int) -> str | None:
    """Return a line of a Python file, without indentation; None for other files."""
    try:
        return linecache.getline(file, line).strip() or None if _is_python(file) else None
    except (OSError, ValueError):  # a name that is too long, or has a null byte
        return None


def source_lines(file: str) -> list[str] | None:
    """Return the lines of a Python file, or of a cell of a notebook; None for other files."""
    try:
        return [line.rstrip("\n") for line in linecache.getlines(file)] or None if _is_python(file) else None
    except (OSError, ValueError):
        return None


def _is_python(file: str) -> bool:
    """Return whether a Python file can be read.

    A program or a module from elsewhere may name any file, including devices that have no end.
    """
    if file in linecache.cache:
        return True
    main = getattr(sys.modules.get("__main__"), "__file__", None)  # a script may have no suffix
    return (file == main or file.endswith(".py")) and Path(file).is_file()
