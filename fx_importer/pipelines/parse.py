"""The text of a pipeline, read back."""

from __future__ import annotations

from collections.abc import Iterator

from fx_importer.errors import UsageError
from fx_importer.pipelines.contracts import CHECKS
from fx_importer.pipelines.pipeline import Pass, Step
from fx_importer.pipelines.rewrite_steps import REWRITES
from fx_importer.pipelines.tosa_contract import CHECK, WARN


def parse_steps(text: str) -> tuple[Step, ...]:
    """Return the steps of ``builtin.module(...)``: our own by name; what is MLIR's is left as it is, for MLIR to read.

    Raises:
        UsageError: if ``text`` does not read so.
    """
    anchor, _, rest = text.strip().partition("(")
    if anchor.strip() != "builtin.module" or not rest.endswith(")"):
        raise UsageError(f"not a pass pipeline: {text!r} (one reads 'builtin.module(...)')")
    known = {**REWRITES, **{step.name: step for step in (*CHECKS.values(), CHECK, WARN)}}
    return tuple(known.get(part.strip()) or Pass(part) for part in _split(rest[:-1]))


def _split(text: str) -> Iterator[str]:
    """Yield what commas separate, those in parentheses and braces apart."""
    depth = start = 0
    for position, character in enumerate(text):
        depth += (character in "({") - (character in ")}")
        if character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]
