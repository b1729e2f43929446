"""Cache key of a lowering: everything that its result depends on. Other lowerings are not cached.

Inputs that may give different results must have different keys. Keys are therefore made of texts that distinguish all
values: ``repr`` of types with a faithful one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from enum import Enum
from typing import Any

from torch.export import ExportedProgram

from fx_importer.caching.uncacheable import NotCached
from fx_importer.caching.versions import settings, versions
from fx_importer.compiler.caching.cached_weights import ElidedWeights
from fx_importer.compiler.caching.program_digest import LIBRARIES, PLAIN, Digest
from fx_importer.options import Contract, Options, PrintOptions, Unsupported, Weights
from fx_importer.output_types import OutputType
from fx_importer.targets import TARGETS


def options_text(options: Options) -> str:
    """Return the text of all options that affect the result.

    Raises:
        NotCached: for user functions, whose sources do not determine their behaviour, and for options that print,
            dump or warn.
    """
    lowering, decompositions = options.lowering, options.decompositions
    reasons = {
        f"the output type {options.output_type.value} is the user's": options.output_type not in TARGETS,
        "decomposition_table is given": decompositions.table is not None,
        "extra is given": bool(decompositions.extra),
        "lowerings are given": bool(lowering.lowerings),
        "a pipeline is given": lowering.pipeline is not None,
        "a fallback is given": bool(lowering.fallback),
        "what is unsupported is outlined": lowering.unsupported is not Unsupported.ERROR,
        "weights are outside of the module": options.importing.weights is not Weights.INLINE,
        "layers are outlined": options.importing.outline_layers,
        "process groups are this process's": options.importing.mesh is not None,
        "the contract may warn": lowering.contract is not Contract.ERROR,
        "something is printed": options.printing != PrintOptions(),
        "stages are dumped": options.running.dump_ir is not None,
        "a library has changed torch's decompositions": not _is_stock(options.output_type),
    }
    if reasons_met := [reason for reason, holds in reasons.items() if holds]:
        raise NotCached(", ".join(reasons_met))
    parts = [decompositions.keep, options.export.quantized, options.importing, lowering]
    return repr([options.output_type.value, *map(_plain, parts)])


@functools.cache
def _is_stock(output_type: OutputType) -> bool:
    """Return whether all rules for torch's own operators come from torch or this package."""
    table = TARGETS[output_type].decompositions if output_type in TARGETS else {}
    rules = [rule for operator, rule in table.items() if getattr(operator, "namespace", "aten") in LIBRARIES]
    # composite operators have a partial of a torch function
    homes = [getattr(rule, "func", rule).__module__.partition(".")[0] for rule in rules]
    return set(homes) <= {"torch", "fx_importer"}


def _plain(value: Any) -> Any:
    if type(value) in PLAIN:
        return value
    if isinstance(value, Enum):
        return type(value).__name__, value.name
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, Mapping) and not value:
        return ()
    if dataclasses.is_dataclass(value):
        fields = [(field.name, _plain(getattr(value, field.name))) for field in dataclasses.fields(value)]
        return type(value).__name__, fields
    raise NotCached(f"an option is of type {type(value).__name__}")


def key_of(programs: Mapping[str, ExportedProgram], options: Options) -> tuple[str, ElidedWeights]:
    """Return the key of this lowering of ``programs``, and the weights whose types alone are in the key.

    Raises:
        NotCached: if the key cannot represent an input.
    """
    digest = Digest()
    digest.add(versions(), settings(), options_text(options))
    for name, program in programs.items():
        digest.add("program", name)
        digest.program(program)
    digest.environments()
    return digest.hexdigest(), digest.elided
