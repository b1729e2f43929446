"""The two sides, with stages timed by wrapping their functions."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from torch.export import ExportedProgram

Lowering = Callable[[ExportedProgram, str], Any]
"""Lowers a program to the output type of that name and returns the module."""

STAGES = ("decompose", "import", "report text", "passes", "rest")
"""Stages of both sides. Report text is torch_mlir.fx's: the module, printed before each pipeline."""


class StageClock:
    """CPU seconds of this process by stage, summed over threads. Nested stages are not counted twice."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start again from zero, outside of any stage."""
        self.seconds: dict[str, float] = dict.fromkeys(STAGES, 0.0)
        self._stage = "rest"
        self._since = time.process_time()

    def read(self) -> dict[str, float]:
        """Return the seconds of each stage up to now."""
        self._charge()
        return dict(self.seconds)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Charge what runs in the body to ``name``."""
        self._charge()
        outer, self._stage = self._stage, name
        try:
            yield
        finally:
            self._charge()
            self._stage = outer

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` with its calls charged to ``name``."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name):
                return function(*args, **kwargs)

        return call

    def _charge(self) -> None:
        now = time.process_time()
        self.seconds[self._stage] += now - self._since
        self._since = now


def torch_mlir_fx(clock: StageClock) -> Lowering:
    """torch-mlir's own ``torch_mlir.fx.export_and_import``."""
    from torch_mlir import compiler_utils, fx
    from torch_mlir.extras.fx_importer import FxImporter

    pass_manager: Any = compiler_utils.PassManager

    def parse(pipeline: str) -> SimpleNamespace:
        manager = pass_manager.parse(pipeline)
        return SimpleNamespace(run=clock.timed("passes", manager.run))

    decompose = ExportedProgram.run_decompositions
    patch.object(ExportedProgram, "run_decompositions", clock.timed("decompose", decompose)).start()
    patch.object(FxImporter, "import_frozen_program", clock.timed("import", FxImporter.import_frozen_program)).start()
    # Besides running the passes, `run_pipeline_with_repro_report` only prints the module.
    reporting = clock.timed("report text", compiler_utils.run_pipeline_with_repro_report)
    for module in (compiler_utils, fx):
        patch.object(module, "run_pipeline_with_repro_report", reporting).start()
    patch.object(compiler_utils, "PassManager", SimpleNamespace(parse=parse)).start()

    return lambda program, output_type: fx.export_and_import(program, output_type=output_type)


def fx_importer(clock: StageClock) -> Lowering:
    """This project's ``export_and_import``, its stages as its trace names them."""
    from fx_importer.api.lower import export_and_import
    from fx_importer.diagnostics.trace import Trace

    groups = {"frontend": "rest", "decompositions": "decompose", "fx_passes": "decompose", "importing": "import"}
    run_stage = Trace.stage

    @contextmanager
    def stage(self: Trace, name: str, *args: Any, **kwargs: Any) -> Iterator[Any]:
        with clock.stage(groups.get(name, "passes")), run_stage(self, name, *args, **kwargs) as record:
            yield record

    patch.object(Trace, "stage", stage).start()
    return lambda program, output_type: export_and_import(program, output_type=output_type)


SIDES: dict[str, Callable[[StageClock], Lowering]] = {"torch_mlir.fx": torch_mlir_fx, "fx_importer": fx_importer}
