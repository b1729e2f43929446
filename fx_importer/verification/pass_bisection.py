"""Bisection by pass: the stage and the pass after which numbers differ from eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram

from fx_importer.calls.backend import Backend
from fx_importer.calls.caller import Caller
from fx_importer.diagnostics import progress
from fx_importer.diagnostics.ir_printer import pass_name
from fx_importer.diagnostics.observers import Observer
from fx_importer.diagnostics.pass_filter import PassFilter, filtering_passes
from fx_importer.diagnostics.trace import IMPORTED_FUNCTION, LOCAL_FUNCTION, StageRecord, Trace
from fx_importer.engines.engine_table import REFERENCE_ENGINE
from fx_importer.frontend.torch_patches import warnings_filtered
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_contents import copy_module
from fx_importer.pipelines import VERIFIERS, Pipeline, run_stage
from fx_importer.verification.comparison import Comparison, Tolerance, compare
from fx_importer.verification.eager_reference import Reference
from fx_importer.verification.program_results import call_named, expected_results
from fx_importer.verification.subject import Inputs, Named, Subject
from fx_importer.verification.verifier import chosen, named


@dataclass(frozen=True)
class WrongPass:
    """A pass after which numbers differ from eager PyTorch."""

    stage: str
    name: str
    backend: str
    """The backend whose results differ."""
    comparison: Comparison
    """Comparison of the first result that differs."""

    def __str__(self) -> str:
        return f"{self.backend}: numbers differ after pass '{self.name}' in stage '{self.stage}': {self.comparison}"


Relower = Callable[[Trace], object]
"""Lowers the exported programs of the subject again, and adds the stages to a trace."""


def first_wrong_pass(
    subject: Subject,
    with_module: Callable[[ir.Module], Subject],
    relower: Relower,
    pipeline: Pipeline,
    inputs: Inputs,
    backend: str | Backend,
    tolerance: Tolerance,
) -> WrongPass | None:
    """Return the pass after which the numbers of ``subject`` differ from eager's on ``backend``; None if unknown.

    Programs are run in PyTorch after each FX pass. An MLIR pass, of ``pipeline`` or of the engine, is wrong if the
    numbers are right when the module before it goes through the passes after it. A pass that others depend on cannot
    be left out, and is not found.
    """
    inputs = named(inputs, subject.exported)
    (expected,) = expected_results(subject, [inputs])
    programs = _ProgramRuns(subject, inputs, expected, tolerance)
    with warnings_filtered("ignore"):
        relower(Trace(dumps=programs))
        if programs.wrong is not None:
            return programs.wrong
        if programs.imported is None:
            return None
        modules = _ModuleRuns(with_module, programs.imported, pipeline, inputs, expected, backend, tolerance)
        return modules.wrong_pass()


def _mismatch(caller: Caller, inputs: Inputs, expected: Named, tolerance: Tolerance) -> Comparison | None:
    """Return the first comparison of the results of a call that is out of tolerance."""
    results = call_named(caller, inputs)
    comparisons = (compare(value, wanted, tolerance) for (_, value), (_, wanted) in zip(results, expected, strict=True))
    return next((comparison for comparison in comparisons if not comparison.passed), None)


@dataclass
class _ProgramRuns(Observer):
    """Runs programs in PyTorch after each FX pass, and keeps the imported module."""

    subject: Subject
    inputs: Inputs
    expected: Named
    tolerance: Tolerance
    wrong: WrongPass | None = None
    imported: ir.Operation | None = None
    _stage: str = ""

    def before(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        self._stage = record.name
        if record.pipeline and module is not None and self.imported is None:
            self.imported = module.operation.clone()

    def after_fx_pass(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        if self.wrong is not None:
            return
        progress.enter(f"run after {name}")
        manifest = self.subject.manifest
        functions = {key: Reference(programs[key], function) for key, function in manifest.functions.items()}
        try:
            caller = Caller(manifest, functions, self.subject.initial_state())
            comparison = _mismatch(caller, self.inputs, self.expected, self.tolerance)
        except Exception:  # a legal program may have types and operators that PyTorch does not run
            return
        if comparison is not None:
            self.wrong = WrongPass(self._stage, name, REFERENCE_ENGINE, comparison)


@dataclass(frozen=True)
class _ModuleRuns:
    """Lowers an imported module, runs it on a backend, and compares the results."""

    with_module: Callable[[ir.Module], Subject]
    imported: ir.Operation
    pipeline: Pipeline
    inputs: Inputs
    expected: Named
    backend: str | Backend
    tolerance: Tolerance

    def wrong_pass(self) -> WrongPass | None:
        """Return the last pass without which the numbers are right: those before it may only lead to its pattern."""
        everything = PassFilter()
        comparison = self._mismatch(everything)
        if comparison is None:
            return None
        for number, (stage, text) in reversed(list(enumerate(everything.passes))):
            progress.enter(f"run without {text}")
            try:
                right = self._mismatch(PassFilter(number)) is None
            except Exception:  # other passes depend on this one
                continue
            if right:
                backend: Any = self.backend
                name = backend if isinstance(backend, str) else backend.name
                return WrongPass(stage, _name_of(text), name, comparison)
        return None

    def _mismatch(self, pass_filter: PassFilter) -> Comparison | None:
        module = copy_module(self.imported)
        with filtering_passes(pass_filter):
            for stage in self.pipeline.without_passes(*VERIFIERS).stages:
                run_stage(stage, module)
            subject = self.with_module(module)
            backend = chosen(subject, self.backend, None)
            function = self.inputs.function or ""
            loaded: Any = backend.load(subject.linked, function)
            caller = Caller(subject.manifest, {function: loaded}, subject.initial_state())
            return _mismatch(caller, self.inputs, self.expected, self.tolerance)


def _name_of(text: str) -> str:
    """Return the name of a pass in MLIR's syntax, or of a function of the user."""
    for prefix in (IMPORTED_FUNCTION, LOCAL_FUNCTION):
        if text.startswith(prefix):
            return text.removeprefix(prefix).rstrip("}").rpartition(":")[2]
    return pass_name(text)
