"""Result of a compilation: the module, its manifest and its programs."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.export import ExportedProgram

from fx_importer.diagnostics.operator_output_types import OperatorOutputType
from fx_importer.diagnostics.remarks import WeightsRead
from fx_importer.diagnostics.trace import Trace
from fx_importer.manifest import NARROW, NARROW_FLOATS, Manifest, Weight
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.resources import key_of, resources_in
from fx_importer.options import DecompositionOptions, Options, Weights

if TYPE_CHECKING:  # a module that was saved runs without the compiler
    from fx_importer.compiler.compilation import Compilation
    from fx_importer.compiler.outline import OutlineOutcome
    from fx_importer.importing import ImportResult


class Recompile(Protocol):
    """Lowers another model, or several programs by the names of their functions, with the options of a compilation."""

    def __call__(
        self, f: Any, args: Sequence[Any], decompositions: DecompositionOptions | None, /, trace: Trace | None = None
    ) -> Compiled:
        """Lower ``f``; stages are added to ``trace``, if given."""
        ...


@dataclass(frozen=True)
class Compiled:
    """One or several lowered programs in one module, and the record of how they were lowered."""

    programs: Mapping[str, ExportedProgram]
    """The programs, decomposed and canonical, by the names of their functions. The imported ones may have other
    dtypes if the output type requires it."""
    exported: Mapping[str, ExportedProgram]
    """The programs as torch.export captured them, or as they were passed. They share the weights."""
    module: ir.Module
    manifest: Manifest
    """Arguments, results and state of the functions; ``manifest.to_json()`` is for other tools."""
    trace: Trace
    options: Options
    recompile: Recompile = field(repr=False)
    """Lowers another model or program with these options, and with other decompositions if given."""
    operator_output_types: tuple[OperatorOutputType, ...] = ()
    """With a fallback: the output type to which each operator was lowered, and why not to the requested one."""
    drawn: tuple[str, ...] = ()
    """Functions whose random numbers were drawn by this lowering, since the output type draws none."""
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Weights of a module that was read from a file, by name; else the programs hold them."""
    integers: Mapping[str, ExportedProgram] = field(default_factory=dict)
    """With ``quantized="integer"``, the exported programs with operators on integers."""

    folded: tuple[tuple[torch.Tensor, int], ...] = field(default=(), repr=False)
    """Weights from which constants of the module were computed, with the counters of their changes in place."""

    @property
    def computed(self) -> Mapping[str, ExportedProgram]:
        """The exported programs in the form whose numbers the module has."""
        return self.integers or self.exported


def weights_read(trace: Trace) -> set[str]:
    """Return the names of the weights whose elements the module depends on."""
    remarks = (remark for stage in trace.stages for remark in stage.remarks)
    return {name for remark in remarks if isinstance(remark, WeightsRead) for name in remark.names}


def folded_weights(trace: Trace, programs: Mapping[str, ExportedProgram]) -> tuple[tuple[torch.Tensor, int], ...]:
    """Return the weights of ``programs`` that were read, with the counters of their changes in place."""
    names = weights_read(trace)
    held = {
        name: tensor
        for program in programs.values()
        for name, tensor in {**program.constants, **program.state_dict}.items()
        if name in names and isinstance(tensor, torch.Tensor) and not tensor.is_inference()
    }
    return tuple((tensor, tensor._version) for tensor in held.values())


class LazyPrograms(Mapping[str, ExportedProgram]):
    """Mapping with known names whose programs are created on first access."""

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


def manifest_of(imported: ImportResult, outcome: OutlineOutcome, compilation: Compilation) -> Manifest:
    """Return the manifest of the lowered module of ``imported``."""
    options = compilation.options
    manifest = Manifest(
        options.output_type.value,
        imported.signatures,
        imported.state,
        imported.constants,
        outcome.operator_stubs,
        outcome.fallback,
        _weights(imported, options.importing.weights),
        imported.mesh,
        imported.process_groups,
    )
    if not compilation.target.narrows:
        return manifest
    integers = NARROW if options.lowering.narrow_integers else {}
    floats = NARROW_FLOATS if options.lowering.narrow_floats else {}
    return manifest.passing({**integers, **floats})


def _weights(imported: ImportResult, policy: Weights) -> Mapping[str, Weight]:
    """Return the weights outside the module. Of external ones, return those that the module still refers to.

    A stage in another process may have changed the type of a resource. MLIR then treats it as a new one, and appends a
    number to the name to make it unique.
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
