"""What lowering gives: a module, and what is done with it: run, verified, bisected, saved."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_importer.bindings import ir
from fx_importer.census import Placement
from fx_importer.errors import UsageError
from fx_importer.execution import Backend, Caller, EagerBackend, backend_named, default_for
from fx_importer.execution.artifact import Weights, artifact_of
from fx_importer.lowerings import layers, stubs_of
from fx_importer.manifest import Hole, Manifest
from fx_importer.options import DecompositionOptions, Options
from fx_importer.output_types import OutputType
from fx_importer.saving import ARTIFACT, check_writable, save_bytes, save_module
from fx_importer.trace import Trace
from fx_importer.verification import Divergence, Inputs, Tolerance, Verdict, bisect, example_inputs, verify


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
    census: tuple[Placement, ...] = ()
    """With a fallback: which operators went to which output type, and why not to the one that was asked for."""

    @property
    def program(self) -> ExportedProgram:
        """The program, where there is one; the first where there are several."""
        return next(iter(self.programs.values()))

    @property
    def holes(self) -> Mapping[str, Hole]:
        """What PyTorch has to run, with ``unsupported="outline"``, by the names of the functions in the module."""
        return self.manifest.holes

    @property
    def stubs(self) -> Mapping[str, Callable[..., Any]]:
        """What PyTorch runs instead of operators that are external calls, by name."""
        return stubs_of(layers(self.options.lowering.lowerings))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the module: text for ``.mlir``, bytecode for ``.mlirbc``, `save_artifact` for ``.stablehlo``.

        Raises `UsageError` if it cannot be.
        """
        if Path(path).suffix == ARTIFACT:
            self.save_artifact(path)
        else:
            save_module(self.module, path)

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
        check_writable(path, module=False)
        save_bytes(artifact_of(self.module, version, weights), path)

    def caller(self, state: Mapping[str, torch.Tensor] | None = None, backend: str | Backend | None = None) -> Caller:
        """Return the module's functions, ready to run on ``backend``, with a state of their own.

        Args:
            state: what it is to begin with; without it, what the programs were exported with.
            backend: a name, of `BACKENDS` or ``"eager"`` for the programs themselves, or one of your own; without it,
                the output type's: the JIT, StableHLO's interpreter, TOSA's reference model. With holes, the JIT.

        Raises:
            NotInstalledError: naming the extra that brings the backend.
            UsageError: for what the backend cannot run, or if a part of the state is missing.
        """
        if backend is None:
            backend = default_for(self.manifest)
        if isinstance(backend, str):
            eager = backend == "eager"
            backend = EagerBackend(self.programs, self.manifest) if eager else backend_named(backend, self.stubs)
        loaded = {name: backend.load(self.module, name) for name in self.manifest.functions}
        return Caller(self.manifest, loaded, self.initial_state() if state is None else state)

    def initial_state(self) -> dict[str, torch.Tensor]:
        """Return the state that the programs were exported with, by its name in the state dict."""
        if not self.manifest.state:
            return {}
        return {
            name: tensor
            for program in self.programs.values()
            for name, tensor in {**program.constants, **program.state_dict}.items()
            if name in self.manifest.state
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
        if not inputs:
            inputs = Inputs(args, kwargs) if args or kwargs else example_inputs(self.exported)[0]
        backend = default_for(self.manifest) if backend is None else backend
        return bisect(self, self._relower, inputs, backend, Tolerance(rtol, atol), isolate)
