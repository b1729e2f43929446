"""JSON of files that someone else may have written or edited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

MAX_DEPTH = 200


def read_regular(path: Path) -> bytes:
    """Return the bytes of a file. Raises OSError for pipes and devices, which may never end."""
    if path.exists() and not path.is_file():
        raise OSError(f"'{path.name}' is not a regular file")
    return path.read_bytes()


def parse_json(text: str | bytes, *, finite: bool = True) -> Any:
    """Return the value of ``text``, each key of whose objects is there once.

    Args:
        text: the document, in UTF-8 if it is bytes.
        finite: whether NaN and infinities are refused, which are not JSON, but which Python's writer writes.

    Raises:
        ValueError: if it is not JSON, or nested deeper than `MAX_DEPTH`.
    """
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant if finite else None)
        _check_depth(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:80]!r} is there twice")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = (
            [
                part
                for container in level
                for part in (container.values() if isinstance(container, dict) else container)
                if isinstance(part, dict | list)
            ]
            if isinstance(value, dict | list)
            else []
        )
        if not level:
            return
    raise ValueError("it is nested too deeply")
