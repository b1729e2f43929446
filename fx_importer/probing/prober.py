"""Lowering of many small modules, each once."""

from __future__ import annotations

import functools
from collections.abc import Callable

from fx_importer.errors import CrashedError, StageFailed
from fx_importer.mlir.bindings import ir
from fx_importer.options import Limits
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, isolated_runner
from fx_importer.pipelines.isolated_runner import RunStage
from fx_importer.pipelines.python_passes import calls_functions
from fx_importer.probing.probe_store import ProbeStore
from fx_importer.probing.search import LoweringFailure, reason_of

LIMITS = Limits(seconds=30)
"""Limits for one module, which usually takes 20 ms."""


class Prober:
    """Lowers modules by given pipelines in another process."""

    def __init__(self, pipeline: Callable[[OutputType], Pipeline], store: ProbeStore | None = None):
        """``pipeline`` returns the pipeline of an output type. Results are looked up in ``store`` and added to it."""
        self._pipeline = functools.cache(pipeline)
        self._store = store
        self._known: dict[tuple[str, OutputType], LoweringFailure | None] = {}

    @functools.cached_property
    def _process(self) -> isolated_runner.IsolatedProber:
        return isolated_runner.IsolatedProber(LIMITS)

    def with_pipelines(self, pipeline: Callable[[OutputType], Pipeline]) -> Prober:
        """Return a prober with other pipelines, and with the process and the store of this one."""
        made = Prober(pipeline, self._store)
        made.__dict__["_process"] = self._process
        return made

    def runner(self, module: ir.Module) -> RunStage:
        """Return a function that runs stages on ``module`` in the prober's process."""
        return self._process.runner(module)

    def __call__(self, text: str, output_type: OutputType) -> LoweringFailure | None:
        """Return the failure of lowering ``text``, a module in the torch dialect; None if it succeeds."""
        key = (text, output_type)
        if key not in self._known:
            self._known[key] = self._looked_up(text, output_type)
        return self._known[key]

    def _looked_up(self, text: str, output_type: OutputType) -> LoweringFailure | None:
        pipeline = str(self._pipeline(output_type))
        if self._store is None or calls_functions(pipeline):
            return self._lower(text, output_type)
        known, failure = self._store.get(pipeline, text)
        if not known:
            failure = self._lower(text, output_type)
            self._store.put(pipeline, text, failure)
        return failure

    def _lower(self, text: str, output_type: OutputType) -> LoweringFailure | None:
        error = self._process.run(text, self._pipeline(output_type).stages).error
        if error is None:
            return None
        stage = error.stage or "its start"
        if isinstance(error, CrashedError):
            ended = f"by the signal {error.signal}" if error.signal else f"at its {error.limit or 'own fault'}"
            return LoweringFailure(
                stage, f"the process was ended {ended}" + (f", in {error.pass_name}" if error.pass_name else "")
            )
        if isinstance(error, StageFailed) and error.diagnostics:
            return LoweringFailure(stage, reason_of([diagnostic.message for diagnostic in error.diagnostics]))
        return LoweringFailure(stage, str(error).partition("\n")[2].strip() or str(error))
