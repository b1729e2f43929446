"""What lowering gives: a module, and what is done with it: run, verified, bisected, saved."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_importer.diagnostics.operator_output_types import OperatorOutputType
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import UsageError
from fx_importer.execution import Backend, Caller, EagerBackend, backend_named, default_for
from fx_importer.execution.iree import IreeBackend
from fx_importer.execution.iree_parameters import SCOPE, with_parameters
from fx_importer.execution.portable_artifact import Weights, artifact_of
from fx_importer.fx_graph.programs import with_tensors
from fx_importer.lowerings import layers, stubs_of
from fx_importer.manifest import Manifest, OperatorStub
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_io import (
    ARTIFACT,
    SUFFIXES,
    all_or_none,
    check_writable,
    holds_weights,
    manifest_path,
    save_bytes,
    save_module,
    save_text,
)
from fx_importer.options import DecompositionOptions, Options
from fx_importer.options import Weights as WeightPolicy
from fx_importer.output_types import OutputType
from fx_importer.verification import Divergence, Inputs, Tolerance, Verdict, bisect, example_inputs, verify
from fx_importer.weights import Source, as_passed, linked, read_weights, save_weights


class Later(Mapping[str, ExportedProgram]):
    """Programs that are made when one is asked for. Their names are known."""

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


@dataclass(frozen=True)
class Lowered:
    """A lowered program, or several in one module, and the record of how it came about."""

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
    _relower: Callable[[Any, Sequence[Any], DecompositionOptions | None], Lowered] = field(repr=False)
    """Lowers another model or program as this one was; with other decompositions, if there are any."""
    operator_output_types: tuple[OperatorOutputType, ...] = ()
    """With a fallback: the output type that each operator was lowered to, and why not to the requested one."""

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
        """Deprecated name of `operator_stubs`."""
        warnings.warn("Lowered.holes is called Lowered.operator_stubs now", DeprecationWarning, stacklevel=2)
        return self.operator_stubs

    @property
    def census(self) -> tuple[OperatorOutputType, ...]:
        """Deprecated name of `operator_output_types`."""
        message = "Lowered.census is called Lowered.operator_output_types now"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
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
        if holds_weights(path, self.options.importing.weights) or not self.manifest.weights:
            if weights is not None:
                raise UsageError(
                    "the weights are in the module: lower with weights='external' to have them elsewhere, and save a "
                    ".mlir or .mlirbc file"
                )
            self._save_module(path)
            return
        manifest, beside = self.manifest, manifest_path(check_writable(path, SUFFIXES))
        check_writable(beside)
        with all_or_none(path, beside, *([] if weights is None else [weights])):
            if weights is not None:
                manifest = save_weights(manifest, self.held(manifest.weights_by_name), weights, beside.parent)
            self._save_module(path)
            save_text(manifest.to_json(), beside)

    def _save_module(self, path: str | os.PathLike[str]) -> None:
        if Path(path).suffix == ARTIFACT:
            self.save_artifact(path)
        else:
            save_module(self.module, path, self.manifest.weights)

    def iree_source(self, scope: str = SCOPE) -> str:
        """Return the module as text for ``iree-compile``, in which weights are parameters of ``scope``.

        They are called as in the state dict. IREE's runtime takes them from a file that `save` has written,
        ``--parameters=model=model.safetensors`` say. What comes out does not hold them.

        Raises `UsageError` unless the weights are external.
        """
        if self.options.importing.weights is not WeightPolicy.EXTERNAL:
            raise UsageError("the module does not name its weights: lower with weights='external'")
        names = {key: each.name for key, each in self.manifest.weights.items()}
        return with_parameters(self.module, names, scope)

    def with_weights(self, weights: Source) -> Lowered:
        """Return this with other weights in its programs, for `run`, `verify`, `save` and all else; the module stays.

        Args:
            weights: a state dict, a model, an exported program, a file or a directory, or a list of such, as `link`
                takes it.

        Raises:
            UsageError: if the weights are in the module; or listing all that do not fit.
        """
        if self.options.importing.weights is WeightPolicy.INLINE:
            raise UsageError("the weights are in the module: lower with weights='external' or 'args' to change them")
        tensors = read_weights(self.manifest, weights)
        names = {name: each.name for each in self.manifest.weights.values() for name in (each.name, *each.also)}
        given = {name: tensors[first] for name, first in names.items()}
        return replace(
            self,
            programs={name: with_tensors(each, given) for name, each in self.programs.items()},
            exported={name: with_tensors(each, given) for name, each in self.exported.items()},
        )

    @functools.cached_property
    def linked(self) -> ir.Module:
        """The module with its weights in it: those that the programs hold.

        Raises `UsageError` that lists those without values.
        """
        if self.options.importing.weights is not WeightPolicy.EXTERNAL:
            return self.module
        return linked(self.module, self.manifest.weights, self._weights())

    def _weights(self) -> dict[str, torch.Tensor]:
        """Return what the module does not hold, and the programs do, by name."""
        held = self.held(self.manifest.weights_by_name)
        if empty := [name for name, each in held.items() if each.is_meta]:
            more = f" and {len(empty) - 3} more" if len(empty) > 3 else ""
            raise UsageError(
                f"the model has no values for {', '.join(map(repr, empty[:3]))}{more}: it is on the meta device. Take "
                "Lowered.with_weights(...), of a state dict, a model or a file"
            )
        return held

    def save_artifact(
        self, path: str | os.PathLike[str], version: str = "week-12", weights: Weights = "inline"
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
        if self.options.output_type.root is not OutputType.STABLEHLO:
            kind = self.options.output_type.value
            raise UsageError(f"a portable artifact holds StableHLO, but the module is {kind}: lower to 'stablehlo'")
        check_writable(path)
        save_bytes(artifact_of(self.linked if weights == "inline" else self.module, version, weights), path)

    def caller(self, state: Mapping[str, torch.Tensor] | None = None, backend: str | Backend | None = None) -> Caller:
        """Return the module's functions, ready to run on ``backend``, with a state of their own.

        Args:
            state: what it is to begin with; without it, what the programs were exported with. Weights that functions
                take may be in it.
            backend: a name, of `BACKENDS` or ``"eager"`` for the programs themselves, or one of your own; without it,
                the output type's: the JIT, StableHLO's interpreter, TOSA's reference model; with stubs, the JIT.

        Raises:
            NotInstalledError: naming the extra that brings the backend.
            UsageError: for what the backend cannot run, or if a part of the state is missing.
        """
        if backend is None:
            backend = default_for(self.manifest)
        if isinstance(backend, str):
            eager = backend == "eager"
            backend = EagerBackend(self.programs, self.manifest) if eager else backend_named(backend, self.stubs)
        if isinstance(backend, IreeBackend) and self.options.importing.weights is WeightPolicy.EXTERNAL:
            held, module = self._weights(), self.module  # nothing is compiled in
            passed = {key: as_passed(held[each.name], each) for key, each in self.manifest.weights.items()}
            backend = replace(backend, parameters=passed)
        else:
            module = self.linked
        loaded = {name: backend.load(module, name) for name in self.manifest.functions}
        initial = self.initial_state()
        weights = {name: tensor for name, tensor in initial.items() if name not in self.manifest.state}
        return Caller(self.manifest, loaded, initial if state is None else {**weights, **state})

    def initial_state(self) -> dict[str, torch.Tensor]:
        """Return the state that the programs were exported with, by its name in the state dict.

        Weights are in it where functions take them.
        """
        state = self.held(self.manifest.state)
        return {**self._weights(), **state} if self.options.importing.weights is WeightPolicy.ARGS else state

    def held(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """Return the tensors that the programs hold under ``names`` in the state dict."""
        if not names:
            return {}
        return {
            name: tensor
            for program in self.programs.values()
            for name, tensor in {**program.constants, **program.state_dict}.items()
            if name in names
        }

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
        if (args or kwargs) and inputs:
            raise UsageError("pass one input set as the model takes it, or several in inputs=[Inputs(...), ...]")
        self._weights()  # without values, there is nothing to compare
        sets = [Inputs(args, kwargs)] if args or kwargs else inputs
        return verify(self, sets, backends, Tolerance(rtol, atol), isolate)

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

        The program is lowered again, with its values on the way as outputs; what differs is then lowered alone. A
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
        if (args or kwargs) and inputs:
            raise UsageError("pass inputs as the model takes them, or inputs=Inputs(...)")
        self._weights()
        if not inputs:
            inputs = Inputs(args, kwargs) if args or kwargs else example_inputs(self.exported)[0]
        backend = default_for(self.manifest) if backend is None else backend
        return bisect(self, self._relower, inputs, backend, Tolerance(rtol, atol), isolate)
