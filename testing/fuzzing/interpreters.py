"""The reference interpreters of the judge: each call is a fork of one process that has imported them.

A new process for each call, as engines start it, spends most of its time on imports.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fx_importer.engines.stablehlo_interpreter import stablehlo_backend
from fx_importer.engines.tosa_reference import tosa_reference_backend
from fx_importer.options import Limits
from fx_importer.process.forking_process import ForkingProcess


def prepare() -> None:
    """Import what the forks need."""
    from fx_importer.engines.stablehlo_interpreter import stablehlo_backend_child  # noqa: F401 - the import is the use

    with suppress(ImportError):
        import tosa_reference_model  # noqa: F401 - the import is the use


def use_forks() -> None:
    """Let both engines run in forks from now on."""
    forks, running = ForkingProcess(f"{__name__}:prepare", os.environ), threading.Lock()

    def run(what: str, function: Callable[..., None], *arguments: str | Path, limits: Limits | None = None) -> None:
        name = f"{function.__module__}:{function.__name__}"
        with running:  # it runs one at a time
            forks.run(what, name, *arguments, limits=limits or Limits(), environment=os.environ, directory=Path.cwd())

    stablehlo_backend.run_isolated = tosa_reference_backend.run_isolated = run
