"""The result of lowering: a module, and what can be done with it: run, verify, bisect, save."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_importer.api.held_tensors import held_tensors, initial_state, linked_module, with_weights
from fx_importer.api.run import bisect_lowered, caller_of, inputs_given, verify_lowered
from fx_importer.api.save import DEFAULT_VERSION, iree_source_of, save_lowered, save_portable_artifact
from fx_importer.compiler.compiled import Compiled
from fx_importer.diagnostics.operator_output_types import OperatorOutputType
from fx_importer.errors import warn_renamed
from fx_importer.execution import Backend, Caller
from fx_importer.execution.iree_parameters import SCOPE
from fx_importer.execution.portable_artifact import Weights
from fx_importer.lowerings import layers, stubs_of
from fx_importer.manifest import OperatorStub
from fx_importer.mlir.bindings import ir
from fx_importer.options import DecompositionOptions
from fx_importer.verification import Divergence, Inputs, Tolerance, Verdict
from fx_importer.weights import Source


@dataclass(frozen=True)
class Lowered(Compiled):
    """A lowered program, or several in one module, and the record of how they were lowered."""

    @classmethod
    def of(cls, compiled: Compiled) -> Lowered:
        """Return the result of a compilation with the methods of this class."""
        return cls(**{each.name: getattr(compiled, each.name) for each in fields(compiled)})

    def lower_again(self, f: Any, args: Sequence[Any], decompositions: DecompositionOptions | None = None) -> Lowered:
        """Lower another model or program as this one was; with other decompositions, if there are any."""
        return Lowered.of(self.recompile(f, args, decompositions))

    @property
    def program(self) -> ExportedProgram:
        """The program, where there is one; the first where there are several."""
        return next(iter(self.programs.values()))

    @property
    def operator_stubs(self) -> Mapping[str, OperatorStub]:
        """Stubs of unsupported operators, which PyTorch runs, with ``unsupported="outline"``: by function name."""
        return self.manifest.operator_stubs

    @property
    def holes(self) -> Mapping[str, OperatorStub]:
        """The name of `operator_stubs` in version 0.1."""
        warn_renamed("Lowered.holes", "Lowered.operator_stubs")
        return self.operator_stubs

    @property
    def census(self) -> tuple[OperatorOutputType, ...]:
        """The name of `operator_output_types` in version 0.1."""
        warn_renamed("Lowered.census", "Lowered.operator_output_types")
        return self.operator_output_types

    @property
    def stubs(self) -> Mapping[str, Callable[..., Any]]:
        """What PyTorch runs instead of operators that are external calls, by name."""
        return stubs_of(layers(self.options.lowering.lowerings))

    def save(self, path: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None) -> None:
        """Write the module: text for ``.mlir``, bytecode for ``.mlirbc``, `save_artifact` for ``.stablehlo``.

        Of a module without its weights, the manifest is written too, beside it: ``model.manifest.json``. An artifact
        names no weights: it has external ones inside.

        Args:
            path: the file.
            weights: of such a module: the file, or transformers' directory, that has them, which the manifest then says
                for each; or, if it is not there, where to write them: a .safetensors or .irpa file.

        Raises:
            UsageError: if a file cannot be written, or weights are not what the module was made for. No file that was
                not there before is left behind then.
        """
        save_lowered(self, path, weights)

    def iree_source(self, scope: str = SCOPE) -> str:
        """Return the module as text for ``iree-compile``, in which weights are parameters of ``scope``.

        They are called as in the state dict. IREE's runtime takes them from a file that `save` has written,
        ``--parameters=model=model.safetensors`` say. What comes out does not hold them.

        Raises `UsageError` unless the weights are external.
        """
        return iree_source_of(self, scope)

    def with_weights(self, weights: Source) -> Lowered:
        """Return this with other weights in its programs, for `run`, `verify`, `save` and all else; the module stays.

        Args:
            weights: a state dict, a model, an exported program, a file or a directory, or a list of such, as `link`
                takes it.

        Raises:
            UsageError: if the weights are in the module; or listing all that do not fit.
        """
        return with_weights(self, weights)

    @functools.cached_property
    def linked(self) -> ir.Module:
        """The module with its weights in it: those that the programs hold.

        Raises `UsageError` that lists those without values.
        """
        return linked_module(self)

    def save_artifact(
        self, path: str | os.PathLike[str], version: str = DEFAULT_VERSION, weights: Weights = "inline"
    ) -> None:
        """Write StableHLO as a portable artifact, which other releases of StableHLO, and XLA, read.

        Args:
            path: the file; its usual suffix is ``.stablehlo``.
            version: the release of StableHLO that it is for, and all later ones: ``"1.0.0"``; or ``"current"``,
                ``"week-4"``, ``"week-12"``, ``"minimum"``, as StableHLO names the releases that can be written for.
            weights: ``"inline"``; or ``"arguments"``: each is a last argument of the functions that read it, and the
                argument's attribute ``fx_importer.constant`` is its name in the manifest.

        Raises:
            UsageError: if the module is not StableHLO, there is no such version, or the file cannot be written.
        """
        save_portable_artifact(self, path, version, weights)

    def caller(self, state: Mapping[str, torch.Tensor] | None = None, backend: str | Backend | None = None) -> Caller:
        """Return the module's functions, ready to run on ``backend``, with a state of their own.

        Args:
            state: what it is to begin with; without it, what the programs were exported with. Weights that functions
                take may be in it.
            backend: a name, of `BACKENDS` or ``"eager"`` for the programs themselves, or one of your own; without it,
                the output type's: the JIT, StableHLO's interpreter, TOSA's reference model. With stubs, the JIT.

        Raises:
            NotInstalledError: naming the extra that brings the backend.
            UsageError: for what the backend cannot run, or if a part of the state is missing.
        """
        return caller_of(self, state, backend)

    def initial_state(self) -> dict[str, torch.Tensor]:
        """Return the state that the programs were exported with, by its name in the state dict.

        Weights are in it where functions take them.
        """
        return initial_state(self)

    def held(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """Return the tensors that the programs hold under ``names`` in the state dict."""
        return held_tensors(self, names)

    @functools.cached_property
    def _caller(self) -> Caller:
        return self.caller()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module on the output type's backend: takes what the model takes, returns what it returns.

        The first call compiles. A model that mutates state does so here too, from one call to the next; `caller` makes
        one that starts afresh, runs on other backends, and has the functions by name where there are several.

        Raises:
            NotInstalledError: naming the extra that brings the backend.
            UsageError: for inputs that the program was not exported for, or an output type that has no backend.
        """
        return self._caller(*args, **kwargs)

    def verify(
        self,
        *args: Any,
        inputs: Sequence[Inputs] = (),
        backends: Sequence[str | Backend] | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        isolate: bool = True,
        **kwargs: Any,
    ) -> Verdict:
        """Run the programs as they were exported, in PyTorch, and the module on backends, and compare all results.

        Outputs, new state, gradients and inputs that are written to are compared, as `compare` does it. State begins
        afresh for each backend, and is kept from one input set to the next.

        Args:
            *args: what the model takes. With no inputs at all, what the programs were exported with.
            inputs: several input sets instead, or those of other functions than the only one.
            backends: names or backends of your own. Without it, all that run the output type and are installed; the
                output type's own has to be.
            rtol: instead of the dtype's own, in ``|a - e| <= rtol * |e| + atol``.
            atol: the same. By default it goes with the largest magnitude of the output: see `Tolerance`.
            isolate: whether what may end its process gets one of its own. It takes some seconds to start; all input
                sets and backends share it. Backends of your own run in this one.
            **kwargs: the model's keyword arguments.

        Raises:
            UsageError: for inputs that the programs were not exported for, a name that is no backend, or an output type
                that nothing runs.
        """
        given = inputs_given(args, kwargs)
        return verify_lowered(self, given, inputs, backends, Tolerance(rtol, atol), isolate)

    def bisect(
        self,
        *args: Any,
        inputs: Inputs | None = None,
        backend: str | Backend | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        isolate: bool = True,
        **kwargs: Any,
    ) -> Divergence | None:
        """Find the first operation of the exported program whose value differs on ``backend``; None if all agrees.

        The program is lowered again, with its intermediate values as outputs; what differs is then lowered alone. A
        script that shows the operation without the model is written to a new directory. State is as it was exported.

        Args:
            *args: what the model takes. With no inputs at all, what the program was exported with.
            inputs: the inputs of another function than the only one, instead.
            backend: a name or a backend of your own; without it, the output type's. ``"eager"`` finds wrong
                decompositions.
            rtol: as for `verify`.
            atol: as for `verify`.
            isolate: as for `verify`.
            **kwargs: the model's keyword arguments.

        Raises:
            UsageError: if the program does not run there, so that there are no values; and as `verify` does.
        """
        given = inputs_given(args, kwargs)
        return bisect_lowered(self, given, inputs, backend, Tolerance(rtol, atol), isolate)
