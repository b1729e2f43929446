"""`--json -`, and the suffixes that `-o` takes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer

from fx_importer import lower
from fx_importer.cli import app, main
from fx_importer.cli.json_output import json_output

MODEL = "print('loading')\nimport torch\ndef build():\n    return torch.nn.ReLU(), (torch.ones(2),)\n"


@pytest.fixture(autouse=True)
def _model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("written_model.py").write_text(MODEL)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    sys.modules.pop("written_model", None)
    monkeypatch.setattr(sys, "argv", ["fx-importer", *arguments])
    with pytest.raises(SystemExit) as exit:
        main()
    return int(exit.value.code or 0)


@pytest.mark.parametrize("command", ["doctor", "decompositions written_model:build", "explain written_model:build"])
def test_json_to_stdout_is_one_document(command, monkeypatch, capsys):
    assert run(monkeypatch, *command.split(), "--json", "-") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)
    assert err
    assert [path.name for path in Path().iterdir() if path.name != "__pycache__"] == ["written_model.py"]


def test_prints_go_to_stderr_beside_a_document(capsys):
    with json_output(Path("-")) as write:
        print("a table")
        write("{}\n")
    assert capsys.readouterr() == ("{}\n", "a table\n")


def test_every_json_option_takes_a_dash():
    commands = {
        name: command
        for name, command in typer.main.get_command(app).commands.items()  # pyright: ignore
        if any("--json" in option.opts for option in command.params)
    }
    assert len(commands) == 21
    for name in commands:
        file = {"import": "commands/import_model", "opt": "opt/run_passes", "build": "native/build"}.get(
            name, f"commands/{name}"
        )
        module = Path(__file__).parents[2] / "fx_importer/cli" / f"{file}.py"
        assert "with json_output(" in module.read_text(), name


@pytest.mark.parametrize(
    ("command", "accepted"),
    [
        ("import written_model:build -o x.bin", ".mlir (text), .mlirbc (bytecode) or .stablehlo"),
        ("quantize written_model:build -o x.bin", "must be .pt2"),
        ("vela written_model:build --accelerator ethos-u55-128 -o x.bin", "must be .tflite"),
        ("view written_model:build -o x.bin", ".html (a page) or .json (its data)"),
        ("build written_model:build -o x.bin", "'x.bin' is not a name in C"),
        ("build written_model:build -o x --target z80", "no target 'z80'"),
        ("compile m.mlirbc -o x.bin", "must be .vmfb"),
        ("link m.mlirbc -o x.bin", ".mlir (text) or .mlirbc (bytecode)"),
        ("explain written_model:build --json missing/x.json", "the directory 'missing' does not exist"),
        ("import written_model:build -o x.mlir --manifest -", "not written to standard output"),
        ("import written_model:build -o x.mlir --json x.mlir", "--output and --json are the same file 'x.mlir'"),
        ("import written_model:build -o x.mlir --json y/../x.mlir", "are the same file 'y/../x.mlir'"),
    ],
)
def test_bad_outputs_are_named_before_the_work(command, accepted, monkeypatch, capsys):
    assert run(monkeypatch, *command.split()) == 2
    out, err = capsys.readouterr()
    assert accepted in err
    assert "loading" not in out


@pytest.mark.parametrize("words", ["opt m.mlir >&-", "opt m.mlir > /dev/full", "llm -h > /dev/full", "llm run -h >&-"])
def test_output_that_cannot_be_written_is_an_error(words: str) -> None:
    Path("m.mlir").write_text("func.func @f() {\n  return\n}\n")
    command = f"{sys.executable} -m fx_importer {words}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert re.fullmatch("error: standard output cannot be written: .+\n", ran.stderr)


@pytest.mark.parametrize("kind", [str, Path])
def test_compiled_program_is_saved_to_text_and_path(kind, tmp_path):
    compiled = lower(torch.relu, torch.ones(2), output_type="linalg-on-tensors").compile()
    compiled.save(kind(tmp_path / "relu.vmfb"), kind(tmp_path / "kernels"))
    assert (tmp_path / "relu.vmfb").read_bytes() == compiled.code
    assert {path.name for path in (tmp_path / "kernels").iterdir()} == set(compiled.kernels)
