"""How far work has come: who is told, how often, and where a line is shown."""

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


def test_a_function_is_told_of_stages_and_of_what_is_counted_in_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fx_importer.diagnostics.progress._INTERVAL", 0.0)
    told: list[Progress] = []
    lowered = fx_importer.lower(Long(), torch.ones(2), output_type="linalg", progress=told.append)
    assert list(dict.fromkeys(each.stage for each in told)) == [each.name for each in lowered.trace.stages]
    nodes = [each for each in told if each.stage == "import" and each.unit == "nodes"]
    assert [each.done for each in nodes] == list(range(202))
    assert {each.total for each in nodes} == {202}
    passes = [each for each in told if each.stage == "linalg" and each.unit == "passes"]
    assert [each.done for each in passes] == list(range(len(passes)))
    assert passes[-1].total == len(passes) > 5


def test_what_cannot_be_told_is_refused():
    with pytest.raises(UsageError, match="progress='yes': it is True, or a function that is told"):
        fx_importer.lower(torch.nn.ReLU(), torch.ones(2), progress="yes")  # type: ignore[arg-type]


def test_it_is_told_a_few_times_a_second():
    told: list[Progress] = []
    with reporting_progress(told.append):
        assert list(counted(range(100_000), "things")) == list(range(100_000))
    assert 1 <= len(told) <= 5


def test_what_one_thing_holds_is_not_counted_beside_the_things(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fx_importer.diagnostics.progress._INTERVAL", 0.0)
    told: list[Progress] = []
    with reporting_progress(told.append):
        for _ in counted([1, 2], "outer"):
            list(counted([1, 2, 3], "inner"))
    assert [(each.done, each.total, each.unit) for each in told] == [(0, 2, "outer"), (1, 2, "outer")]


def test_nobody_is_told_when_the_call_is_over():
    told: list[Progress] = []
    fx_importer.lower(torch.nn.ReLU(), torch.ones(2), progress=told.append)
    before = len(told)
    assert before
    fx_importer.lower(torch.nn.ReLU(), torch.ones(2))
    assert len(told) == before


@pytest.mark.parametrize("output_type", ["torch", "linalg", "tosa", "stablehlo"])
def test_the_module_is_the_same(output_type: str):
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
        (Progress("import", 50, 100, "nodes", 30.0, 20.0), 20.0),
        (Progress("import", 1, 100, "nodes", 30.0, 20.0), None),  # too few of them
        (Progress("import", 50, 100, "nodes", 30.0, 0.5), None),  # too short
        (Progress("linalg", 6, 12, "passes", 30.0, 20.0), None),  # one may take as long as all others
        (Progress("export", seconds=30.0), None),
    ],
    ids=["half", "few", "short", "passes", "nothing counted"],
)
def test_the_time_that_is_left_is_said_unless_it_is_a_guess(progress: Progress, remaining: float | None):
    assert progress.remaining == remaining


class Terminal:
    """Standard error on a pseudo-terminal, and what is written there."""

    def __init__(self) -> None:
        self._reads, writes = pty.openpty()
        fcntl.ioctl(writes, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.stderr = open(writes, "w", buffering=1)  # noqa: PTH123, SIM115 - a descriptor, closed in `read`
        self._said = bytearray()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._reads, 4096):
                self._said += piece
        except OSError:  # Linux's way to say that the other end is closed
            pass

    def read(self) -> str:
        self.stderr.close()
        self._reader.join()
        os.close(self._reads)
        return self._said.decode()


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
    """Run the command line with its standard error on ``terminal``; return what is there."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["fx-importer", *arguments])
        patch.setattr(sys, "stderr", terminal.stderr)
        with pytest.raises(SystemExit):
            main()
    return terminal.read()


_ERASED = "\x1b[2K"
IMPORT = ("import", "models_of_progress:build", "--output-type", "linalg", "-o")


def test_a_terminal_shows_the_stages_in_a_line_that_is_gone_in_the_end(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal, capsys: pytest.CaptureFixture[str]
):
    said = command(monkeypatch, terminal, *IMPORT, "out.mlir")
    assert "export" in said
    assert said.endswith(_ERASED)
    assert "export" not in capsys.readouterr().out.partition("(")[0]


def test_the_line_is_gone_before_an_error_is_said(monkeypatch: pytest.MonkeyPatch, terminal: Terminal):
    said = command(monkeypatch, terminal, "import", "models_of_progress:wrong", "-o", "out.mlir")
    shown, erased, error = said.rpartition(_ERASED)
    assert erased
    assert "export" in shown
    assert error.startswith("error: ")


def test_standard_output_holds_the_module_alone(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal, capfdbinary: pytest.CaptureFixture[bytes]
):
    command(monkeypatch, terminal, *IMPORT, "-")
    out = capfdbinary.readouterr().out
    assert out.startswith(b"#map")
    assert b"\x1b" not in out


@pytest.mark.parametrize("name, value", [("CI", "true"), ("NO_COLOR", "1"), ("TERM", "dumb")])
def test_where_plain_text_is_wanted_there_is_no_line(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal, name: str, value: str
):
    monkeypatch.setenv(name, value)
    assert command(monkeypatch, terminal, *IMPORT, "out.mlir") == ""


@pytest.mark.parametrize("forced", [False, True])
def test_a_pipe_is_silent(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal, capfd: pytest.CaptureFixture[str], forced: bool
):
    if forced:
        monkeypatch.setenv("FORCE_COLOR", "1")  # which rich takes for a terminal
    monkeypatch.setattr(sys, "argv", ["fx-importer", *IMPORT, "out.mlir"])
    with pytest.raises(SystemExit):
        main()
    assert capfd.readouterr().err == ""


def test_python_shows_nothing_unless_asked(monkeypatch: pytest.MonkeyPatch, terminal: Terminal):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal.stderr)
        fx_importer.lower(torch.nn.ReLU(), torch.ones(2))
        assert not terminal._said
        fx_importer.lower(torch.nn.ReLU(), torch.ones(2), progress=True)
    assert "export" in terminal.read()


def test_reducing_shows_its_trials(monkeypatch: pytest.MonkeyPatch, terminal: Terminal):
    said = command(monkeypatch, terminal, "reduce", "models_of_progress:build", "--output-type", "linalg")
    assert "trial 1" in said
    error = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.rpartition(_ERASED)[2])
    assert error.startswith("error: it does not fail here")
