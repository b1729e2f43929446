"""Suggestions for unsupported operators, tried out if possible."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from fx_importer.output_types import OutputType
from fx_importer.probing.operator_modules import Probe


def suggestions(
    probe: Probe,
    op: str,
    output_type: OutputType,
    lower: Callable[[str, OutputType], Any],
    kept: Collection[str],
    alternatives: Collection[OutputType],
) -> Iterator[str]:
    """Yield changes with which the operator ``op`` of ``probe`` lowers, or may lower.

    ``lower`` returns None for the text of a module that lowers. ``alternatives`` are output types to try instead.
    """
    if op in kept:
        yield f"without keep={op!r}: it has a decomposition"
    for changed, saying in _variants(probe.text):
        if changed != probe.text and lower(changed, output_type) is None:
            yield saying
    others = [each for each in alternatives if each is not output_type and lower(probe.text, each) is None]
    if others:
        yield " or ".join(f"output_type={each.value!r}" for each in others) + ", which supports it"
    if op not in kept and not op.startswith("prim") and op == probe.op:
        yield f"a decomposition of your own, extra={{torch.ops.{op}: function}}"


def _variants(text: str) -> Iterator[tuple[str, str]]:
    yield re.sub(r"\bf64\b", "f32", text), "float32 instead of float64"
    yield re.sub(r"\bf16\b", "f32", re.sub(r"\bbf16\b", "f32", text)), "float32 instead of half precision"
    yield re.sub(r"\bcomplex<f64>", "complex<f32>", text), "complex64 instead of complex128"
    yield text.replace("?", "2"), "static sizes: no dynamic_shapes here"
