"""Names of files on the terminal: control characters are escaped, whatever command prints them."""

from __future__ import annotations

import io

import pytest
from rich.table import Table
from typer.testing import CliRunner

from fx_importer import UsageError
from fx_importer.cli import app
from fx_importer.cli.escaped_console import escaped_console
from fx_importer.cli.terminal import echo
from fx_importer.errors import CrashedError, StageFailed, printable

HOSTILE = "n\x1b]0;title\x07\x1b[2J\r\x9b\u202e\udc80\tx\n"
CODES = ("\x1b]0;", "\x1b[2J", "\x07")
ESCAPED = "n\\x1b]0;title\\x07\\x1b[2J\\r\\x9b\\u202e\\udc80\tx\n"
MODULE = """
func.func @"a\\1B]0;title\\07\\1B[2J"(%x: tensor<2xf32> {fx_importer.name = "n\\1B[31m"}) -> tensor<2xf32> {
  %y = "an.op"(%x) {"k\\1B" = 1 : i32} : (tensor<2xf32>) -> tensor<2xf32> loc("l\\1B[2J.py":1:2)
  return %y : tensor<2xf32>
}
"""


def test_control_characters_are_escaped(capsys):
    assert printable(HOSTILE) == ESCAPED
    assert printable("ünïcode 模型 'a' \\x1b") == "ünïcode 模型 'a' \\x1b"
    echo(HOSTILE, end="")
    assert capsys.readouterr().out == ESCAPED


@pytest.mark.parametrize(
    "error", [UsageError(f"'{HOSTILE}'"), StageFailed("stage", HOSTILE), CrashedError("it", None, HOSTILE)]
)
def test_errors_are_printable(error):
    assert not set("\x1b\x07\r\x9b\u202e\udc80") & set(str(error))
    str(error).encode()


@pytest.mark.parametrize("terminal", [True, False])
def test_tables_are_printable(terminal):
    table = Table("name")
    table.add_row(HOSTILE)
    file = io.StringIO()
    made = escaped_console(file=file, force_terminal=terminal, width=100, color_system="standard" if terminal else None)
    made.print(table)
    made.print("[bold]text[/]", HOSTILE.replace("\n", ""))
    text = file.getvalue()
    assert not [code for code in CODES if code in text]
    assert ("\x1b[1m" in text) == terminal  # rich's own bold


@pytest.mark.parametrize("arguments", [("show", "m.mlir"), ("diff", "m.mlir", "plain.mlir"), ("load\x1b", "m.mlir")])
def test_commands_escape_names_of_files(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.mlir").write_text(MODULE)
    (tmp_path / "plain.mlir").write_text("func.func @f() {\n  return\n}\n")
    run = CliRunner().invoke(app, list(arguments))
    assert not [code for code in CODES if code in run.output]
    assert ("title" in run.output) == (arguments[0] in ("show", "diff"))
