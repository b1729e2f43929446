"""Output of commands: names come from files, so control characters in them are escaped."""

from __future__ import annotations

from typing import TextIO

from fx_importer.errors import printable


def echo(*values: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print ``values`` as `print` does, with control characters escaped. Commands print with it alone."""
    print(printable(sep.join(map(str, values))), end=end, file=file, flush=flush)
