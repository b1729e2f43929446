"""Lowering of many small modules, each once: results are cached on disk."""

from __future__ import annotations

import functools
import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import platformdirs

from fx_importer.errors import CrashedError, StageFailed
from fx_importer.mlir.bindings import ir
from fx_importer.options import Limits
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, isolated_runner
from fx_importer.pipelines.isolated_runner import RunStage
from fx_importer.pipelines.python_passes import calls_functions
from fx_importer.probing.search import LoweringFailure, reason_of

_PACKAGES = ("mlir", "pipelines", "rewrites", "probing")
"""The packages whose sources decide the outcome."""


class ProbeStore:
    """Table of results by pipeline and module, in one file for each state of the package and the wheel.

    Several processes may use it. Errors when writing it are ignored.
    """

    def __init__(self, directory: Path | None = None):
        """``directory`` is the user's cache directory by default."""
        directory = directory or platformdirs.user_cache_path("fx_importer")
        self._path = directory / f"probes-{_state()}.sqlite"

    def get(self, pipeline: str, module: str) -> tuple[bool, LoweringFailure | None]:
        """Return whether a result is stored, and the failure, if it was one."""
        try:
            with closing(self._connected()) as table:
                row = table.execute(
                    "SELECT stage, reason FROM outcomes WHERE key = ?", (_key(pipeline, module),)
                ).fetchone()
        except (sqlite3.Error, OSError):
            return False, None
        return row is not None, LoweringFailure(*row) if row and row[0] is not None else None

    def put(self, pipeline: str, module: str, failure: LoweringFailure | None) -> None:
        """Store a result."""
        row = (failure.stage, failure.reason) if failure else (None, None)
        try:
            with closing(self._connected()) as table, table:
                table.execute("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?)", (_key(pipeline, module), *row))
        except (sqlite3.Error, OSError):
            pass

    def _connected(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        table = sqlite3.connect(self._path, timeout=10)
        table.execute("CREATE TABLE IF NOT EXISTS outcomes (key BLOB PRIMARY KEY, stage TEXT, reason TEXT)")
        return table


def _key(pipeline: str, module: str) -> bytes:
    return hashlib.sha256(f"{pipeline}\0{module}".encode()).digest()


def _state() -> str:
    """Return a digest of the wheel's version and of this package's files."""
    root = Path(__file__).parents[1]
    files = sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py"))
    seen = [(str(path.relative_to(root)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr((version("torch-mlir"), seen)).encode()).hexdigest()[:16]


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
