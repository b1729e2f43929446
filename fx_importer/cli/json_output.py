"""The file of ``--json``, or standard output for ``--json -``."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

from fx_importer.cli.terminal import writing
from fx_importer.mlir.output_files import check_writable, save_text
from fx_importer.output_types import OutputType

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
            yield lambda text: echo_document(text, output)
    else:
        check_writable(path)
        yield lambda text: save_text(text, path)


def echo_document(text: str, output: TextIO) -> None:
    with writing(output):
        print(text.rstrip(), file=output, flush=True)


def document(value: Any) -> str:
    """Return ``value`` as a JSON document. Dataclasses are objects, and values that JSON lacks are texts."""
    return json.dumps(_plain(value), indent=1) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (Enum, OutputType)):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has neither infinities nor NaN
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _key(key: Any) -> str:
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)
