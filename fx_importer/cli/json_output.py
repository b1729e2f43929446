"""The file of ``--json``, or standard output for ``--json -``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from fx_importer.mlir.output_files import check_writable, save_text

STDOUT = "-"


@contextmanager
def json_output(path: Path | None) -> Iterator[Callable[[str], None]]:
    """Check ``path``, and yield a function that writes a JSON document there; to standard output for ``-``.

    For ``-``, what the body prints goes to standard error, so that standard output has the document alone.

    Raises:
        UsageError: if the file cannot be written.
    """
    if path is None:
        yield lambda text: None
    elif str(path) == STDOUT:
        output = sys.stdout
        with redirect_stdout(sys.stderr):
            yield lambda text: print(text.rstrip(), file=output)
    else:
        check_writable(path)
        yield lambda text: save_text(text, path)
