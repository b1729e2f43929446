"""Progress: callbacks and their rate, and when the terminal shows a line."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import torch

import fx_importer
from fx_importer import Progress, UsageError
from fx_importer.cli import main
from fx_importer.diagnostics.progress import counted, reporting_progress

MODELS = """
import torch
def build(): return torch.nn.Linear(2, 2), (torch.ones(1, 2),)
def wrong(): return torch.nn.Linear(2, 2), (torch.ones(1, 3),)
"""


class Long(torch.nn.Module):
    def forward(self, x):
        for _ in range(100):
            x = torch.relu(x + 1)
        return x


def test_callback_gets_stages_and_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fx_importer.diagnostics.progress._INTERVAL", 0.0)
    reports: list[Progress] = []
    lowered = fx_importer.lower(Long(), torch.ones(2), output_type="linalg", progress=reports.append)
    assert list(dict.fromkeys(each.stage for each in reports)) == [each.name for each in lowered.trace.stages]
    nodes = [each for each in reports if each.stage == "importing" and each.unit == "nodes"]
    assert [each.done for each in nodes] == list(range(202))
    assert {each.total for each in nodes} == {202}
    passes = [each for each in reports if each.stage == "linalg" and each.unit == "passes"]
    assert [each.done for each in passes] == list(range(len(passes)))
    assert passes[-1].total == len(passes) > 5


def test_invalid_progress_option():
    with pytest.raises(UsageError, match="progress='yes': expected True, or a function that takes a Progress"):
        fx_importer.lower(torch.nn.ReLU(), torch.ones(2), progress="yes")  # type: ignore[arg-type]


def test_callback_rate_is_limited():
    reports: list[Progress] = []
    with reporting_progress(reports.append):
        assert list(counted(range(100_000), "things")) == list(range(100_000))
    assert 1 <= len(reports) <= 5


def test_nested_counts_are_not_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fx_importer.diagnostics.progress._INTERVAL", 0.0)
    reports: list[Progress] = []
    with reporting_progress(reports.append):
        for _ in counted([1, 2], "outer"):
            list(counted([1, 2, 3], "inner"))
    assert [(each.done, each.total, each.unit) for each in reports] == [(0, 2, "outer"), (1, 2, "outer")]


def test_no_callback_after_the_call():
    reports: list[Progress] = []
    fx_importer.lower(torch.nn.ReLU(), torch.ones(2), progress=reports.append)
    before = len(reports)
    assert before
    fx_importer.lower(torch.nn.ReLU(), torch.ones(2))
    assert len(reports) == before


@pytest.mark.parametrize("output_type", ["torch", "linalg", "tosa", "stablehlo"])
def test_module_does_not_depend_on_progress(output_type: str):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Softmax(-1))
    program = torch.export.export(model, (torch.ones(2, 4),))
    modules = [
        str(fx_importer.export_and_import(program, output_type=output_type, progress=progress))
        for progress in (False, lambda _: None)
    ]
    assert modules[0] == modules[1]


@pytest.mark.parametrize(
    "progress, remaining",
    [
        (Progress("importing", 50, 100, "nodes", 30.0, 20.0), 20.0),
        (Progress("importing", 1, 100, "nodes", 30.0, 20.0), None),  # too few of them
        (Progress("importing", 50, 100, "nodes", 30.0, 0.5), None),  # too short
        (Progress("linalg", 6, 12, "passes", 30.0, 20.0), None),  # one may take as long as all others
        (Progress("frontend", seconds=30.0), None),
    ],
    ids=["half", "few", "short", "passes", "nothing counted"],
)
def test_remaining_time_is_shown_once_it_can_be_estimated(progress: Progress, remaining: float | None):
    assert progress.remaining == remaining


class Terminal:
    """A pseudo-terminal for standard error, and the output written to it."""

    def __init__(self) -> None:
        self._reads, writes = pty.openpty()
        fcntl.ioctl(writes, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.stderr = open(writes, "w", buffering=1)  # noqa: PTH123, SIM115 - a descriptor, closed in `read`
        self._written = bytearray()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._reads, 4096):
                self._written += piece
        except OSError:  # Linux reports a closed other end so
            pass

    def read(self) -> str:
        self.stderr.close()
        self._reader.join()
        os.close(self._reads)
        return self._written.decode()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "models_of_progress.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("CI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    yield (opened := Terminal())
    opened.stderr.close()


def command(monkeypatch: pytest.MonkeyPatch, terminal: Terminal, *arguments: str) -> str:
    """Run the command line with its standard error on ``terminal``; return the output."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["fx-importer", *arguments])
        patch.setattr(sys, "stderr", terminal.stderr)
        with pytest.raises(SystemExit):
            main()
    return terminal.read()


_ERASED = "\x1b[2K"
IMPORT = ("import", "models_of_progress:build", "--output-type", "linalg", "-o")


def test_terminal_line_is_erased_at_the_end(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal, capsys: pytest.CaptureFixture[str]
):
    output = command(monkeypatch, terminal, *IMPORT, "out.mlir")
    assert "frontend" in output
    assert output.endswith(_ERASED)
    assert "frontend" not in capsys.readouterr().out.partition("(")[0]


def test_terminal_line_is_erased_before_an_error(monkeypatch: pytest.MonkeyPatch, terminal: Terminal):
    output = command(monkeypatch, terminal, "import", "models_of_progress:wrong", "-o", "out.mlir")
    shown, erased, error = output.rpartition(_ERASED)
    assert erased
    assert "frontend" in shown
    assert error.startswith("\x1b[1;31merror:\x1b[0m ")


def test_standard_output_has_the_module_only(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal, capfdbinary: pytest.CaptureFixture[bytes]
):
    command(monkeypatch, terminal, *IMPORT, "-")
    out = capfdbinary.readouterr().out
    assert out.startswith(b"#map")
    assert b"\x1b" not in out


@pytest.mark.parametrize("name, value", [("CI", "true"), ("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_line_if_plain_text_is_requested(monkeypatch: pytest.MonkeyPatch, terminal: Terminal, name: str, value: str):
    monkeypatch.setenv(name, value)
    assert command(monkeypatch, terminal, *IMPORT, "out.mlir") == ""


@pytest.mark.parametrize("forced", [False, True])
def test_no_line_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal, capfd: pytest.CaptureFixture[str], forced: bool
):
    if forced:
        monkeypatch.setenv("FORCE_COLOR", "1")  # which rich takes for a terminal
    monkeypatch.setattr(sys, "argv", ["fx-importer", *IMPORT, "out.mlir"])
    with pytest.raises(SystemExit):
        main()
    assert capfd.readouterr().err == ""


def test_python_shows_nothing_by_default(monkeypatch: pytest.MonkeyPatch, terminal: Terminal):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal.stderr)
        fx_importer.lower(torch.nn.ReLU(), torch.ones(2))
        assert not terminal._written
        fx_importer.lower(torch.nn.ReLU(), torch.ones(2), progress=True)
    assert "frontend" in terminal.read()


def test_reduce_shows_trials(monkeypatch: pytest.MonkeyPatch, terminal: Terminal):
    output = command(monkeypatch, terminal, "reduce", "models_of_progress:build", "--output-type", "linalg")
    assert "trial 1" in output
    error = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.rpartition(_ERASED)[2])
    assert error.startswith("error: it does not fail here")
