"""What to try instead of an operator that is refused. What can be tried here has been, before it is said."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from fx_importer.output_types import OutputType
from fx_importer.probing.operator_modules import Probe

BACKENDS = (OutputType.LINALG_ON_TENSORS, OutputType.TOSA, OutputType.STABLEHLO)


def suggestions(
    probe: Probe, op: str, output_type: OutputType, lower: Callable[[str, OutputType], Any], kept: Collection[str]
) -> Iterator[str]:
    """Yield what makes the operator ``op`` pass in ``probe``, or may.

    ``lower`` returns None for the text of a module that passes.
    """
    if op in kept:
        yield f"without {op!r} in what is kept: it has a decomposition"
    for changed, saying in _variants(probe.text):
        if changed != probe.text and lower(changed, output_type) is None:
            yield saying
    others = [each for each in BACKENDS if each is not output_type and lower(probe.text, each) is None]
    if others:
        yield " or ".join(f"output_type={each.value!r}" for each in others) + ", which can take it"
    if op not in kept and not op.startswith("prim") and op == probe.op:
        yield f"a decomposition of your own, extra={{torch.ops.{op}: function}}"


def _variants(text: str) -> Iterator[tuple[str, str]]:
    yield re.sub(r"\bf64\b", "f32", text), "float32 in the place of float64"
    yield re.sub(r"\bf16\b", "f32", re.sub(r"\bbf16\b", "f32", text)), "float32 in the place of half precision"
    yield re.sub(r"\bcomplex<f64>", "complex<f32>", text), "complex64 in the place of complex128"
    yield text.replace("?", "2"), "sizes that are known: no dynamic_shapes here"
