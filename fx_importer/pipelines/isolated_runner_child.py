"""The child process of `fx_importer.pipelines.isolated_runner`."""

from __future__ import annotations

import faulthandler
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fx_importer.diagnostics.mlir_diagnostics import ReportedError, diagnostics_of
from fx_importer.errors import ContractWarning, UsageError
from fx_importer.mlir.bindings import bytecode_of, ir, new_context
from fx_importer.pipelines.module_transfer import ModuleTransfer
from fx_importer.pipelines.pipeline_parser import parse_steps
from fx_importer.pipelines.runner import run_stage
from fx_importer.pipelines.stage import Stage
from fx_importer.process.scratch import full_disk_errors
from fx_importer.process.worker import Note, portable

StageOutcome = tuple[list[Warning], Exception | None]
"""The warnings of a stage, and its failure."""


class Runner:
    """Runs stages, and notes the stage and the pass before each pass."""

    def __init__(self, note: Note):
        faulthandler.enable()  # a crash leaves the line of Python that ran, of a function of the user
        self._note = note
        self._context = new_context()  # making one takes longer than lowering a small module
        self._transfer = ModuleTransfer(self._context)
        self._module: ir.Module | None = None

    def __call__(self, request: Any) -> Any:
        match request:
            case ("begin",):
                self._transfer = ModuleTransfer(self._context)
                return None
            case ("run", path, name, text, made, print_passes, allow_unregistered):
                self._context.allow_unregistered_dialects = allow_unregistered
                ran = self._run(path, name, text, made, print_passes)
                return ran, self._context.allow_unregistered_dialects
            case ("probe", module, stages, result):
                self._context.allow_unregistered_dialects = True
                return self._probe(module, stages, result)
        raise AssertionError(request)

    def _run(self, path: Path | None, name: str, text: str, made: Path, print_passes: bool) -> StageOutcome:
        """Run a stage on the module in ``path``, or on that of the previous stage; write it to the file ``made``."""
        if path:
            self._module = self._transfer.read(path)
        assert self._module
        ran = self._stage(name, text, self._module, print_passes)
        if ran[1] is None:
            with full_disk_errors():
                self._transfer.write(self._module, made)
        return ran

    def _probe(
        self, source: str | bytes, stages: Sequence[tuple[str, str]], result: bool
    ) -> tuple[str, list[Warning], Exception | None, bytes | None]:
        """Run stages on the module ``source``. Return the name of the last stage, its outcome, and the module."""
        try:
            module = ir.Module.parse(source, self._context)
        except ir.MLIRError as error:
            raise UsageError(f"not a module: {error}") from None
        name, warned = "", []
        for name, text in stages:
            more, failure = self._stage(name, text, module)
            warned += more
            if failure:
                return name, warned, failure, None
        if not result:
            return name, warned, None, None
        data = bytecode_of(module.operation)
        return name, warned, None, data

    def _stage(self, name: str, text: str, module: ir.Module, print_passes: bool = False) -> StageOutcome:
        self._note(name)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", ContractWarning)  # other categories keep their filters
            try:
                run_stage(
                    Stage(name, "", parse_steps(text)),
                    module,
                    print_passes=print_passes,
                    on_pass=lambda line: self._note(f"{name}\n{line}"),
                )
            except ir.MLIRError as error:
                failure = ReportedError(str(error), diagnostics_of(error))
            except Exception as error:
                failure = portable(error)
            else:
                failure = None
        return [warning.message for warning in warned if isinstance(warning.message, Warning)], failure
