"""Targets of user-defined output types, derived from the target of their base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fx_importer.errors import UsageError
from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import CONTRACT, VERIFIERS, Dialects, Pipeline, changed, contract
from fx_importer.targets.target import Target

if TYPE_CHECKING:
    from fx_importer.decompositions import DecompositionTable


def user_target(output_type: OutputType, base: Target) -> Target:
    """Return the target of ``output_type``: ``base`` with its decompositions, pipeline and contract."""
    return replace(
        base,
        output_type=output_type,
        load_decompositions=partial(_decompositions, output_type, base),
        pipelines=(partial(_pipeline, output_type, base),),
        contract=_contract(output_type) if output_type.allows else base.contract,
    )


def _decompositions(output_type: OutputType, base: Target) -> DecompositionTable:
    """Return the decompositions of ``output_type``. Raises UsageError if they are not a table."""
    from fx_importer.decompositions import expand_packets

    rules = output_type.decompositions
    table = (
        base.decompositions if rules is None else rules if isinstance(rules, Mapping) else rules(base.decompositions)
    )
    if not isinstance(table, Mapping):
        raise UsageError(f"{output_type!r}: its decompositions are no table but {type(table).__name__}")
    return expand_packets(table)


def _contract(output_type: OutputType) -> Dialects:
    return Dialects(output_type.value, output_type.allows)


def _pipeline(output_type: OutputType, base: Target, options: LoweringOptions) -> Pipeline:
    """Return the pipeline of ``output_type``, which ends with its contract."""
    inherited = replace(base.own_pipeline(options), name=output_type.value)
    if output_type.allows:
        checked = contract(_contract(output_type), options.contract)
        others = inherited.without_stage(CONTRACT) if inherited.has(CONTRACT) else inherited
        inherited = replace(others, stages=(*others.stages, checked)).without_passes(*VERIFIERS)
    try:
        made = changed(inherited, output_type.pipeline)
    except UsageError as error:
        raise UsageError(f"output type '{output_type.value}' ({output_type.where}): {error}") from error
    missing = [stage for stage in inherited.stages if stage.name == CONTRACT and not made.has(CONTRACT)]
    return Pipeline(output_type.value, (*made.stages, *missing))
