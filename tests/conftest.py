"""Settings of all tests, and of the processes that they start."""

from __future__ import annotations

import gc
import logging
import operator
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from fx_importer.diagnostics.installed_packages.package_versions import packages
from fx_importer.errors import NotInstalledError
from testing.nightly_rows import listed_rows, missing
from tests import fork_server

# Read when torch is first imported. Tests run in parallel, and none has enough work for two threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A test that needs the network fails at once.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def reports_in_tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        directory = str(tmp_path_factory.mktemp("temporary"))
        patch.setenv("TMPDIR", directory)
        patch.setattr(tempfile, "tempdir", directory)
        yield


class _Records(logging.Handler):
    """Collects records of INFO and above."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """Return the records that this package and torch log during the test, of INFO and above."""
    handler = _Records()
    loggers = [logging.getLogger(name) for name in ("fx_importer", "torch")]
    loggers[0].setLevel(logging.INFO)
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.records
    for logger in loggers:
        logger.removeHandler(handler)
    loggers[0].setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def without_guard_latency() -> None:
    """Skip TorchDynamo's measurement of the guards of each graph, which flushes the caches: 30 ms, for a log line."""
    if guards := sys.modules.get("torch._dynamo.guards"):
        guards.profile_guard_manager = lambda *_: 0.0  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture(autouse=True)
def without_advice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip trials of other options after expected failures, but in tests of what they suggest."""
    if request.node.get_closest_marker("advice") is None:
        monkeypatch.setattr("fx_importer.compiler.compile_programs.advisor_for", lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--new-interpreters", action="store_true", help="start every process anew, without forks")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("new_interpreters"):
        return
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        os.environ[fork_server.FOLDER] = str(fork_server.the_server().folder)  # for all workers
    else:
        subprocess.Popen = fork_server.ForkingPopen


NIGHTLY = listed_rows()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the rows of ``nightly_rows.txt`` as slow, and those that ``slow_rows`` names: of an id with a pattern in it,
    or without ``unless``. Of ``in_turn``, mark all rows but those whose value has its turn.
    """
    if item.nodeid in NIGHTLY:
        item.add_marker(pytest.mark.slow)
    if (mark := item.get_closest_marker("in_turn")) and not _has_its_turn(item, mark.args[0]):
        item.add_marker(pytest.mark.slow)
    if (mark := item.get_closest_marker("slow_rows")) is None:
        return
    name = _row(item)
    unless = mark.kwargs.get("unless")
    if any(re.search(each, name) for each in mark.args) or (unless and not re.search(unless, name)):
        item.add_marker(pytest.mark.slow)


def _has_its_turn(item: Any, name: str) -> bool:
    """Return whether the parameter ``name`` has the value whose turn it is: each combination of the others has one."""
    places = {mark.args[0]: _place(item, mark) for mark in item.iter_markers("parametrize")}
    place, count = places.pop(name)
    return sum(other for other, _ in places.values()) % count == place


def _other_values(item: Any, name: str) -> object:
    return tuple((other, id(value)) for other, value in item.callspec.params.items() if other != name)


def _place(item: Any, mark: pytest.Mark) -> tuple[int, int]:
    """Return the index of the item's values among the rows of a ``parametrize``, and the number of rows.

    `callspec.indices` counts the items of the test.
    """
    names, rows = mark.args[0].replace(" ", "").split(","), list(mark.args[1])
    params = [item.callspec.params[name] for name in names]

    def chosen(row: Any) -> bool:
        values = row.values if isinstance(row, type(pytest.param())) else row if len(names) > 1 else (row,)
        return all(map(operator.is_, values, params))

    return next(at for at, row in enumerate(rows) if chosen(row)), len(rows)


def _row(item: pytest.Item) -> str:
    """Return the id of a row of a table."""
    return item.name.partition("[")[2].removesuffix("]")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Raise an error for a pattern of ``slow_rows`` that no row matches, and where all rows are slow."""
    if any("::" in each for each in config.args):
        return
    rows: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    turns: defaultdict[tuple[str, object], list[bool]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow_rows"):
            rows[item.nodeid.partition("[")[0]].append(item)
        if mark := item.get_closest_marker("in_turn"):
            turns[item.nodeid.partition("[")[0], _other_values(item, mark.args[0])].append(
                _has_its_turn(item, mark.args[0])
            )
    for (test, _), chosen in turns.items():
        if sum(chosen) != 1:
            raise pytest.UsageError(f"{test}: {sum(chosen)} rows of a combination have their turn, instead of one")
    if rows_of_no_test := missing(NIGHTLY, {item.nodeid for item in items}):
        raise pytest.UsageError(f"rows of no test in tests/nightly_rows.txt: {', '.join(rows_of_no_test)}")
    for test, found in rows.items():
        (mark,) = found[0].iter_markers("slow_rows")
        for pattern in mark.args:
            if not any(re.search(pattern, _row(item)) for item in found):
                raise pytest.UsageError(f"{test}: no row matches '{pattern}' of slow_rows")
        if not 0 < sum(item.get_closest_marker("slow") is not None for item in found) < len(found):
            raise pytest.UsageError(f"{test}: slow_rows takes all of its rows, or none")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip a test that needs an extra of which a package is not installed."""
    try:
        return (yield)
    except NotInstalledError as error:
        needed = [each for each in packages() if each.extra == error.extra]  # none has xla for Python 3.10
        missing = [each.name for each in needed if each.found is None]
        if needed and not missing:
            raise
        pytest.skip(f"the extra '{error.extra}' is not installed: {', '.join(missing)}")


def pytest_collection_finish() -> None:
    """Exclude permanent objects from garbage collection: a million of torch's, and the tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_sessionfinish() -> None:
    """Exclude all objects from the five collections with which pytest ends."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the seconds of each file too, where ``--durations`` asks for those of tests."""
    if not (shown := config.getoption("durations")):
        return
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.section(f"slowest {shown} files")
    for name, spent in sorted(seconds.items(), key=lambda each: -each[1])[:shown]:
        terminalreporter.write_line(f"{spent:7.1f}s {name}")


@pytest.fixture(autouse=True)
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start processes as forks of a server, except in tests marked ``new_interpreter``."""
    if request.node.get_closest_marker("new_interpreter") or request.config.getoption("new_interpreters"):
        monkeypatch.setattr(fork_server.ForkingPopen, "forks", False)
