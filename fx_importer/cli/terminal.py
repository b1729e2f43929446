"""Output of commands: names come from files, so control characters in them are escaped."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from fx_importer.errors import printable

_STYLES = {"red": "1;31", "yellow": "33", "green": "32"}
"""Codes of ANSI by the name of the colour; errors are bold."""


def echo(*values: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print ``values`` as `print` does, with control characters escaped. Commands print with it alone."""
    print(printable(sep.join(map(str, values))), end=end, file=file, flush=flush)


def labelled(label: str, colour: str, message: object, file: TextIO) -> str:
    """Return ``label: message``, escaped, with the label in ``colour`` if ``file`` is a terminal that shows colours."""
    text = f"{label}:"
    if has_colours(file):
        text = f"\x1b[{_STYLES[colour]}m{text}\x1b[0m"
    return f"{text} {printable(str(message))}"


def has_colours(file: TextIO) -> bool:
    """Return whether ``file`` is a terminal that shows colours, and ``NO_COLOR`` is not set."""
    return file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_labelled(label: str, colour: str, message: object) -> None:
    """Print ``label: message`` to standard error."""
    print(labelled(label, colour, message, sys.stderr), file=sys.stderr)
