"""Lowering of many small modules, each once: results are cached on disk; search for unsupported operators."""

from __future__ import annotations

import functools
import hashlib
import math
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import platformdirs
import torch

from fx_importer.diagnostics.causes import NO_MATCH_ATTRIBUTE, Cause, IncompleteSearch, Place
from fx_importer.diagnostics.progress import counted
from fx_importer.errors import CrashedError, StageFailed
from fx_importer.fx_graph.operators import operator_named
from fx_importer.mlir.bindings import ir
from fx_importer.options import Limits
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, isolated_runner
from fx_importer.pipelines.isolated_runner import RunStage
from fx_importer.pipelines.python_passes import calls_functions
from fx_importer.pipelines.runner import NOT_LOWERED
from fx_importer.probing.operator_modules import call_of, maker_of, overload, probes_of

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


@dataclass(frozen=True)
class LoweringFailure:
    """Failure of the lowering of a module."""

    stage: str
    reason: str
    """MLIR's diagnostics, or how the process crashed."""


_MAX_MESSAGES = 3
"""Number of diagnostics in a reason."""

_MAX_NEIGHBOURS = 64
"""Number of operations near an operator without a source line that are asked for theirs."""

Lower = Callable[[str, OutputType], LoweringFailure | None]
"""Lowers the text of a module in the torch dialect; returns None if that succeeds."""


def causes_in(
    module: ir.Operation,
    output_type: OutputType,
    lower: Lower,
    seconds: float = math.inf,
) -> list[Cause]:
    """Return the operators of ``module``, which is in the torch dialect, that ``output_type`` does not support.

    Each distinct call of an operator is lowered alone.

    Raises:
        IncompleteSearch: after ``seconds``, with the operators found so far.
    """
    start = time.monotonic()
    failed: dict[str, bool] = {}
    causes: dict[str, tuple[Cause, dict[ir.Operation, None]]] = {}
    probes = probes_of(module)
    for number, probe in enumerate(counted(probes, "operators")):
        if time.monotonic() > start + seconds:
            raise IncompleteSearch(_causes(causes), seconds, number, len(probes))
        failed[probe.text] = any(failed[item.text] for item in probe.inside)
        if failed[probe.text]:
            continue  # because of an operator in its regions
        failure = lower(probe.text, output_type)
        failed[probe.text] = failure is not None
        if failure is None:
            continue
        numbers = probe.fixed and lower(probe.fixed, output_type) is None
        for call in probe.numbers if numbers else probe.calls:
            text = call_of(call)  # one of several results suffices
            if text not in causes:
                op = overload(call)
                reason = _reason_of_call(op, text, failure.reason) + _no_match_reason(call)
                causes[text] = Cause(op, text, (), failure.stage, reason), {}
            causes[text][1][call] = None
    return _causes(causes)


def _causes(calls_by_cause: Mapping[str, tuple[Cause, Iterable[ir.Operation]]]) -> list[Cause]:
    return [replace(cause, places=tuple(map(_place, calls))) for cause, calls in calls_by_cause.values()]


def _place(call: ir.Operation) -> Place:
    """Return the place of ``call``, or of the nearest operation before or after it that has a source line."""
    own = Place.of(call.location)
    seen, nearest = {call}, [call]
    while nearest and len(seen) <= _MAX_NEIGHBOURS and own.file is None:
        op = nearest.pop(0)
        users = [use.owner for result in op.results for use in result.uses]
        makers = [maker for operand in op.operands if (maker := maker_of(operand))]
        for neighbour in (*users, *makers):
            place = Place.of(neighbour.location)
            if place.file is not None:
                return place
            if neighbour not in seen:
                seen.add(neighbour)
                nearest.append(neighbour)
    return own


def reason_of(messages: Sequence[str]) -> str:
    """Return the messages of several diagnostics, each once, without the operation that MLIR prints after it.

    Messages about operators that no stage lowered come alone: the others are follow-up errors.
    """
    short = dict.fromkeys(re.split(r': (?:"|%|\()', message.split("\n")[0])[0].strip() for message in messages)
    left = [line for line in short if line.startswith(NOT_LOWERED)]
    reasons = left or list(short)
    more = [f"and {len(reasons) - _MAX_MESSAGES} more"] if len(reasons) > _MAX_MESSAGES else []
    return "; ".join([*reasons[:_MAX_MESSAGES], *more]) or "it failed without a message"


def _no_match_reason(call: ir.Operation) -> str:
    """Return the reasons why the user's lowerings did not match, with a leading semicolon; or an empty string."""
    return (
        f"; {ir.StringAttr(call.attributes[NO_MATCH_ATTRIBUTE]).value}" if NO_MATCH_ATTRIBUTE in call.attributes else ""
    )


def _reason_of_call(op: str, call: str, reason: str) -> str:
    """Return ``reason``, after a remark if a result of the call has a data-dependent size.

    The remark comes alone where ``reason`` names an operator of the decomposition that no output type lowers.
    """
    call_text, _, returned = call.partition(" -> ")
    dynamic = re.compile(r"\?|\b(int|list<int>)[,\])]")
    is_tagged = torch.Tag.dynamic_output_shape in getattr(operator_named(op), "tags", ())
    remark = "the result has a data-dependent size"
    if is_tagged and reason.startswith(NOT_LOWERED) and f".{op.split('.')[1]}'" not in reason:
        return remark
    return f"{remark}; {reason}" if "?" in returned and (is_tagged or not dynamic.search(call_text)) else reason
