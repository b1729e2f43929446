"""Output of commands: names come from files, so control characters in them are escaped."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from fx_importer.errors import printable

if TYPE_CHECKING:
    from fx_importer.mlir.bindings import ir

_STYLES = {"red": "1;31", "yellow": "33", "green": "32"}
"""Codes of ANSI by the name of the colour; errors are bold."""


def echo(*values: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print ``values`` as `print` does, with control characters escaped. Commands print with it alone."""
    with writing(file or sys.stdout):
        print(printable(sep.join(map(str, values))), end=end, file=file, flush=flush)


class StandardOutputError(OSError):
    """Failed write to standard output: it is closed, or its disk is full."""


@contextmanager
def writing(stream: TextIO) -> Iterator[None]:
    """Raise `StandardOutputError` if a write of the body fails, and ``stream`` is not standard error."""
    try:
        yield
    except OSError as error:
        if stream is sys.stderr:
            raise
        raise StandardOutputError(error.errno, error.strerror) from None


def print_module(module: ir.Module, **options: Any) -> None:
    """Print ``module`` to standard output, with options of `ir.Operation.print`. Raises `StandardOutputError`."""
    with writing(sys.stdout):
        sys.stdout.flush()
        module.operation.print(file=sys.stdout.buffer, binary=True, **options)


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
