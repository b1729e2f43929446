"""The record of a lowering: the module, its manifest, its programs, and the tensors that they hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.export import ExportedProgram

from fx_importer.diagnostics.operator_output_types import OperatorOutputType
from fx_importer.diagnostics.remarks import WeightsRead
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import UsageError
from fx_importer.fx_graph.programs import with_tensors
from fx_importer.manifest import Manifest
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.tensor_elements import missing_values
from fx_importer.options import DecompositionOptions, Options, Weights
from fx_importer.process.once import once
from fx_importer.results.changed_weights import LoweredWeight
from fx_importer.weights import Source, linked, read_weights

if TYPE_CHECKING:
    from typing_extensions import Self

    from fx_importer.results.lowered import Lowered
    from fx_importer.verification.original_model import OriginalModel


class Recompile(Protocol):
    """Lowers another model, or several programs by the names of their functions, with the options of a compilation."""

    def __call__(
        self, f: Any, args: Sequence[Any], decompositions: DecompositionOptions | None, /, trace: Trace | None = None
    ) -> Lowered:
        """Lower ``f``; stages are added to ``trace``, if given."""
        ...


@dataclass(frozen=True)
class LoweredRecord:
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
    weights: tuple[LoweredWeight, ...] = field(default=(), repr=False)
    """Weights that the module depends on, with the counters of their changes in place."""
    originals: Mapping[str, OriginalModel] = field(default_factory=dict[str, "OriginalModel"], repr=False)
    """The modules and functions that were exported, by the names of their functions; `verify` calls copies of them."""

    @property
    def computed(self) -> Mapping[str, ExportedProgram]:
        """The exported programs in the form whose numbers the module has."""
        return self.integers or self.exported

    def held(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """Return the tensors that the programs hold under ``names`` in the state dict, or that were read from files."""
        if not names:
            return {}
        tensors = {
            name: tensor
            for program in self.programs.values()
            for name, tensor in {**program.constants, **program.state_dict}.items()
            if name in names
        }
        return {**tensors, **{name: tensor for name, tensor in self.tensors.items() if name in names}}

    def weight_values(self) -> dict[str, torch.Tensor]:
        """Return the weights that the programs hold and the module does not, by name.

        Raises:
            UsageError: listing those without values.
        """
        names = self.manifest.weights_by_name
        tensors = self.held(names)
        if missing := [name for name in names if name not in tensors]:
            raise UsageError(
                f"the module was read without values for {_some(missing)}: pass weights= to fx_importer.load, or take "
                "Lowered.with_weights(...), of a state dict, a model or a file"
            )
        if empty := {name: problem for name, tensor in tensors.items() if (problem := missing_values(tensor))}:
            problem = next(iter(empty.values())).removesuffix(", and has no values")
            raise UsageError(
                f"the model has no values for {_some(list(empty))}: it {problem}. Take Lowered.with_weights(...), of a "
                "state dict, a model or a file"
            )
        return tensors

    def initial_state(self) -> dict[str, torch.Tensor]:
        """Return the state at export, by name in the state dict.

        Includes weights that functions take as arguments.
        """
        state = self.held(self.manifest.state)
        return {**self.weight_values(), **state} if self.options.importing.weights is Weights.ARGS else state

    @once
    def linked(self) -> ir.Module:
        """The module with the weights that the programs hold linked into it.

        Raises `UsageError` listing those without values.
        """
        if self.options.importing.weights is not Weights.EXTERNAL:
            return self.module
        return linked(self.module, self.manifest.weights, self.weight_values())

    def with_weights(self, weights: Source) -> Self:
        """Return a copy with other weights in its programs, for all methods such as `run`, and the same module.

        Args:
            weights: a state dict, a model, an exported program, a file or a directory, or a list of these, as `link`
                takes it.

        Raises:
            UsageError: if the weights are in the module; or listing all that do not match.
        """
        if self.options.importing.weights is Weights.INLINE:
            raise UsageError("the weights are in the module: lower with weights='external' or 'args' to change them")
        tensors = read_weights(self.manifest, weights)
        names = {name: weight.name for weight in self.manifest.weights.values() for name in (weight.name, *weight.also)}
        values = {name: tensors[first] for name, first in names.items()}
        return replace(
            self,
            tensors=values if self.tensors or not self.exported else {},
            programs={name: with_tensors(program, values) for name, program in self.programs.items()},
            exported={name: with_tensors(program, values) for name, program in self.exported.items()},
            originals={name: model.with_given_weights() for name, model in self.originals.items()},
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def weights_read(trace: Trace) -> set[str]:
    """Return the names of the weights whose elements the module depends on."""
    remarks = (remark for stage in trace.stages for remark in stage.remarks)
    return {name for remark in remarks if isinstance(remark, WeightsRead) for name in remark.names}
