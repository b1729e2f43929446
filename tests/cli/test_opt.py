"""`fx-importer opt`: passes of the wheel, of this package and of users, on modules in files and pipes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fx_importer.cli import main
from fx_importer.cli.file_arguments import complete_pipeline
from fx_importer.pipelines.wheel_passes import NAMES, is_pass, opt_passes

TWICE = """\
func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %a = arith.addf %x, %x : tensor<2xf32>
  %b = arith.addf %x, %x : tensor<2xf32>
  %c = arith.mulf %a, %b : tensor<2xf32>
  return %c : tensor<2xf32>
}
"""
WRONG = "func.func @g(%x: tensor<2xf32>) -> tensor<2xf32> {\n  return %x : tensor<3xf32>\n}\n"
PASSES = """\
import os, signal
from fx_importer import Pipeline
def rename(module):
    for op in module.regions[0].blocks[0]:
        op.attributes["mine"] = op.attributes["sym_name"]
def fails(module):
    raise ValueError("not this one")
def interrupt(module):
    os.kill(os.getpid(), signal.SIGINT)
both = Pipeline.of("both", "cse", rename)
"""


@pytest.fixture(autouse=True)
def _files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("twice.mlir").write_text(TWICE)
    Path("two.mlir").write_text(f"{TWICE}// -----\n{WRONG}")
    Path("passes_of_opt.py").write_text(PASSES)


@pytest.fixture
def opt(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]):
    def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fx-importer", "opt", *arguments])
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False))
        with pytest.raises(SystemExit) as exit:
            main()
        out, err = capfdbinary.readouterr()
        return int(exit.value.code or 0), out.decode(), err.decode()

    return run


@pytest.mark.parametrize(
    ("pipeline", "sums"),
    [
        ("cse", 1),
        ("builtin.module(func.func(cse))", 1),
        ("convert-torch-to-linalg", 2),  # runs on functions
        ("fx-importer-fold-linalg-no-ops,cse", 1),
        ("passes_of_opt:both", 1),
    ],
)
def test_passes_of_the_wheel_of_ours_and_of_users(opt, pipeline, sums):
    code, out, err = opt("twice.mlir", "--pipeline", pipeline)
    assert (code, err) == (0, "")
    assert out.count("arith.addf") == sums
    assert ("mine" in out) == ("both" in pipeline)


def test_bytecode_and_pipes(opt):
    assert opt("twice.mlir", "-p", "cse", "-o", "once.mlirbc") == (0, "", "")
    _, text, _ = opt("once.mlirbc")
    assert text.count("arith.addf") == 1
    assert opt(stdin=Path("once.mlirbc").read_bytes()) == (0, text, "")
    assert opt("-", "-p", "canonicalize", stdin=text.encode())[0] == 0


def test_diagnostics_have_file_line_and_column(opt):
    code, out, err = opt("two.mlir", "--split-input", "-p", "cse")
    assert (code, out) == (1, "")
    assert err.startswith("two.mlir:9:10: error: use of value '%x' expects different type")
    code, _, err = opt("twice.mlir", "-p", "one-shot-bufferize{bufferize-function-boundaries=true}")
    assert code == 1
    assert err.startswith("twice.mlir:2:8: error: ")
    assert "twice.mlir:2:8: error: stablehlo may not hold 'arith.addf'" in opt("twice.mlir", "-p", "stablehlo")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["twice.mlir", "-p", "csee"], "`fx-importer opt --list` lists the passes"),
        (["twice.mlir", "-o", "no/x.mlir"], "the directory 'no' does not exist"),
        (["none.mlir"], "cannot read 'none.mlir'"),
        (["twice.mlir", "-p", "passes_of_opt:nothing"], "has no 'nothing'"),
        (["twice.mlir", "-p", "cse", "--print-ir-after", "inline"], "no pass or stage named inline"),
    ],
)
def test_mistakes_are_found_before_the_work(opt, arguments, message):
    code, out, err = opt(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_failure_of_a_users_pass_names_its_line(opt):
    code, _, err = opt("twice.mlir", "-p", "passes_of_opt:fails")
    assert code == 1
    assert "raised ValueError: not this one" in err
    assert "passes_of_opt.py:7" in err


def test_times_and_changes(opt):
    code, _, err = opt("twice.mlir", "-p", "cse", "--print-ir-diff", "--timing")
    assert code == 0
    assert "-    %1 = arith.addf" in err or "-    %0 = arith.addf" in err
    assert "operations after" in err


def test_list(opt):
    code, out, _ = opt("--list", "--json", "-")
    assert code == 0
    listed = json.loads(out)
    assert "fx-importer-fold-linalg-no-ops" in listed["passes of fx_importer"]
    wheel = listed["passes and pipelines of torch-mlir"]
    assert {"cse", "tosa-to-linalg", "torch-backend-to-linalg-on-tensors-backend-pipeline"} <= set(wheel)
    assert wheel["cse"] == "Eliminate common sub-expressions"


def test_names_of_passes_are_those_of_the_wheel():
    names = NAMES.read_text().split()
    assert names == sorted(names)
    assert [name for name in names if not is_pass(name)] == []
    assert set(opt_passes()) <= set(names)


def test_completion_of_the_last_pass():
    assert ("cse,canonicalize", "Canonicalize operations") in complete_pipeline("cse,canon")


def test_interruption_names_the_command():
    command = [sys.executable, "-m", "fx_importer", "opt", "twice.mlir", "-p", "passes_of_opt:interrupt"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (130, "")
    assert ran.stderr.startswith("interrupted: opt in interrupt, after ")


def test_json_without_a_list_is_refused(opt: Any) -> None:
    code, _, err = opt("twice.mlir", "--json", "passes.json")
    assert (code, err) == (2, "error: --json is the file of --list: pass --list too\n")
    assert not Path("passes.json").exists()
