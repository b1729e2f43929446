"""Lowers small modules, many of them."""

from __future__ import annotations

from collections.abc import Mapping

from fx_importer.bindings import ir, new_context
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, run_stage
from fx_importer.probing.search import Failure, reason_of


class Prober:
    """Lowers modules by the pipelines that it was made with, each module once."""

    def __init__(self, pipelines: Mapping[OutputType, Pipeline]):
        self._pipelines = pipelines
        self._known: dict[tuple[str, OutputType], Failure | None] = {}

    def __call__(self, text: str, output_type: OutputType) -> Failure | None:
        """Return how ``text``, a module in the torch dialect, fails to lower; None if it does not."""
        key = (text, output_type)
        if key not in self._known:
            self._known[key] = self._lower(text, output_type)
        return self._known[key]

    def _lower(self, text: str, output_type: OutputType) -> Failure | None:
        module = ir.Module.parse(text, new_context())
        for stage in self._pipelines[output_type].stages:
            try:
                run_stage(stage, module)
            except ir.MLIRError as error:
                return Failure(stage.name, reason_of([each.message for each in error.error_diagnostics]))
            except Exception as error:  # a rewrite of ours
                return Failure(stage.name, f"{type(error).__name__}: {error}")
        return None
