"""The result of a compilation: the module, its manifest, and the programs that it was made from."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.export import ExportedProgram

from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.outline import Outcome
from fx_importer.diagnostics.operator_output_types import OperatorOutputType
from fx_importer.diagnostics.trace import Trace
from fx_importer.importing import ImportResult
from fx_importer.manifest import NARROW, Manifest, Weight
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.resources import key_of, resources_in
from fx_importer.options import DecompositionOptions, Options, Weights


@dataclass(frozen=True)
class Compiled:
    """A lowered program, or several in one module, and the record of how they were lowered."""

    programs: Mapping[str, ExportedProgram]
    """The programs, decomposed and canonical, by the names of their functions. What is imported may have other dtypes,
    where the output type needs it."""
    exported: Mapping[str, ExportedProgram]
    """The programs as they were exported, before anything was decomposed. They share the weights."""
    module: ir.Module
    manifest: Manifest
    """What the functions take and return, and what is state; ``manifest.to_json()`` is for other tools."""
    trace: Trace
    options: Options
    recompile: Callable[[Any, Sequence[Any], DecompositionOptions | None], Compiled] = field(repr=False)
    """Lowers another model or program with these options; with other decompositions, if there are any."""
    operator_output_types: tuple[OperatorOutputType, ...] = ()
    """With a fallback: the output type that each operator was lowered to, and why not to the requested one."""


class LazyPrograms(Mapping[str, ExportedProgram]):
    """Programs whose names are known, and that are made when one is asked for."""

    def __init__(self, names: Iterable[str], make: Callable[[], Mapping[str, ExportedProgram]]):
        self._names = tuple(names)
        self._made = functools.cache(make)

    def __getitem__(self, name: str) -> ExportedProgram:
        if name not in self._names:
            raise KeyError(name)
        return self._made()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def manifest_of(imported: ImportResult, outcome: Outcome, compilation: Compilation) -> Manifest:
    """Return the manifest of a module, lowered, that ``imported`` was."""
    options = compilation.options
    manifest = Manifest(
        options.output_type.value,
        imported.signatures,
        imported.state,
        imported.constants,
        outcome.operator_stubs,
        outcome.fallback,
        _weights(imported, options.importing.weights),
    )
    narrows = options.lowering.narrow_integers and compilation.target.narrows_integers
    return manifest.passing(NARROW) if narrows else manifest


def _weights(imported: ImportResult, policy: Weights) -> Mapping[str, Weight]:
    """Return the weights that the module does not hold; of external ones, those that it still names.

    A stage in another process may have given a resource another type. MLIR then takes it for a new one, and adds a
    number to the name, with which it is that of no resource that was there before.
    """
    if policy is not Weights.EXTERNAL:
        return imported.weights
    found: dict[str, Weight] = {}
    for key in dict.fromkeys(key_of(value) for _, _, value in resources_in(imported.module.operation)):
        name = key
        while name not in imported.weights and (shorter := re.sub(r"_\d+$", "", name)) != name:
            name = shorter
        if name in imported.weights:
            found[key] = imported.weights[name]
    order = {weight: number for number, weight in enumerate(imported.weights.values())}
    return dict(sorted(found.items(), key=lambda each: order[each[1]]))
