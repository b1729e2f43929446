"""The text of source lines that stack traces and locations name."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path


def source_line(file: str, line: int) -> str | None:
    """Return a line of a Python file, without indentation; None for other files.

    A program or a module from elsewhere may name any file, including devices that have no end.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)  # a script may have no suffix
    if file not in linecache.cache and file != main and not file.endswith(".py"):
        return None
    try:
        if file not in linecache.cache and not Path(file).is_file():
            return None
        return linecache.getline(file, line).strip() or None
    except (OSError, ValueError):  # a name that is too long, or has a null byte
        return None
