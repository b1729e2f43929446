"""Suggestions for unsupported operators, tried out if possible."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from fx_importer.mlir.bindings import ir
from fx_importer.output_types import OutputType
from fx_importer.probing.operator_modules import Probe, call_of, overload
from fx_importer.probing.outline_operators import outline
from fx_importer.probing.type_variants import type_variants


@dataclass(frozen=True)
class Alternatives:
    """Options that a compilation could have had."""

    kept: Collection[str] = ()
    """Operators that were kept from decomposition."""
    output_types: Collection[OutputType] = ()
    """Other output types."""
    fallback: bool = False
    """Whether other output types can be fallbacks too."""
    outline: bool = False
    """Whether ``unsupported="outline"`` is possible."""


def suggestions(
    probe: Probe,
    call: ir.Operation,
    module: ir.Operation,
    output_type: OutputType,
    lower: Callable[[str, OutputType], Any],
    alternatives: Alternatives,
) -> Iterator[str]:
    """Yield changes with which the operator of ``probe``, which ``call`` of ``module`` calls, lowers, or may lower.

    ``lower`` returns None for the text of a module that lowers.
    """
    op = overload(call)
    if op in alternatives.kept:
        yield f"without keep={op!r}: it has a decomposition"
    for changed, description in type_variants(probe.text, module.context, static_sizes=_has_dynamic_inputs(module)):
        if lower(changed, output_type) is None:
            yield description
    others = [each for each in alternatives.output_types if lower(probe.text, each) is None]
    if others:
        yield " or ".join(f"output_type={each.value!r}" for each in others) + ", which supports it"
    outlinable = (alternatives.outline or (others and alternatives.fallback)) and outline(
        module.clone(), [call_of(call)]
    )
    if others and alternatives.fallback and outlinable:
        yield f"fallback={others[0].value!r}: only this operator is lowered to it"
    if alternatives.outline and outlinable:
        yield "unsupported='outline': PyTorch computes this operator, as a function that the module declares"
    if op not in alternatives.kept and not op.startswith("prim") and op == probe.op:
        yield f"a decomposition of your own, extra={{torch.ops.{op}: function}}"


def _has_dynamic_inputs(module: ir.Operation) -> bool:
    """Whether a function of ``module`` takes a tensor with a dynamic dimension: not all are data-dependent sizes."""
    functions = [operation.operation for operation in module.regions[0].blocks[0].operations]
    return any("?" in str(kind) for function in functions if function.regions for kind in _argument_types(function))


def _argument_types(function: ir.Operation) -> Iterator[ir.Type]:
    for block in list(function.regions[0].blocks)[:1]:
        yield from (argument.type for argument in block.arguments)
