"""Commands other than import, and the start-up time of the command line."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import pytest

from fx_importer.cli import main
from fx_importer.cli.option_arguments import ON_COMMAND_LINE, with_options
from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.driver import stages_of
from fx_importer.mlir.bindings import new_context, passmanager
from fx_importer.options import Options
from fx_importer.output_types import OutputType
from fx_importer.pipelines import PIPELINES, RewriteStep
from fx_importer.pipelines.pipeline_parser import parse_steps


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["fx-importer", *arguments])
    with pytest.raises(SystemExit) as exit:
        main()
    out, err = capsys.readouterr()
    return int(exit.value.code or 0), out, err


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(monkeypatch, capsys, "--version")
    assert code == 0
    assert out.splitlines() == [f"{name} {version(name)}" for name in ("fx-importer", "torch", "torch-mlir")]


def test_help_spells_options_in_full(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(monkeypatch, capsys, "import", "--help")
    assert code == 0
    for option in ON_COMMAND_LINE.values():
        assert option.flag in out
        assert with_options(option.help) in " ".join(out.split())


def test_no_command_shows_the_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code, out, err = run(monkeypatch, capsys)
    assert code == 2
    assert "Usage: fx-importer" in out + err


def test_pipeline_lists_the_whole_compilation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(monkeypatch, capsys, "pipeline", "--output-type", "tosa")
    assert code == 0
    stages = [line.partition(":")[0] for line in out.splitlines() if not line.startswith(" ")]
    compilation = Compilation.of(Options(OutputType.TOSA))
    assert stages == [*(stage.name for stage in stages_of(compilation)), "engine tosa_reference"]
    passes = [line.strip() for line in out.splitlines() if line.startswith("  ")]
    assert passes.index("decompose") < passes.index("fold-constants") < passes.index("import")
    (conversion,) = [name for name in passes if name.startswith("func.func(convert-torch-to-tosa")]
    assert passes.index("import") < passes.index(conversion)


def test_pipeline_with_times(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(monkeypatch, capsys, "pipeline", "examples.mlp:build", "--engine", "jit", "--run")
    assert code == 0
    names = [line.split()[0] for line in out.splitlines()]
    assert names.index("frontend") < names.index("decompose") < names.index("convert-torch-to-linalg")
    assert names[-1] == "jit:"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--run",), "--run needs a model"),
        (("--engine", "xla"), "--engine xla runs stablehlo, and not linalg-on-tensors"),
    ],
)
def test_pipeline_mistakes(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    code, _, err = run(monkeypatch, capsys, "pipeline", *arguments)
    assert code == 2
    assert message in err


def test_pipelines_are_listed_in_mlir_syntax(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(monkeypatch, capsys, "pipelines")
    assert code == 0
    assert [line for line in out.splitlines() if line and not line.startswith(" ")] == list(PIPELINES)
    texts = [line.strip() for line in out.splitlines() if line.startswith("    ")]
    assert len(texts) == sum(len(pipeline.stages) for pipeline in PIPELINES.values())
    steps = [step for text in texts for step in parse_steps(text)]
    for step in steps:
        if not isinstance(step, RewriteStep):
            passmanager.PassManager.parse(f"builtin.module({step})", new_context())


def test_pipeline_of_an_output_type(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(monkeypatch, capsys, "pipelines", "--output-type", "TOSA")
    assert code == 0
    assert out.startswith("tosa\n  torch-backend: ")
    assert run(monkeypatch, capsys, "pipelines", "--output-type", "raw")[1].startswith("raw\n  No stage")


def test_pipeline_of_an_unknown_output_type(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code, out, err = run(monkeypatch, capsys, "pipelines", "--output-type", "onnx")
    assert (code, out) == (2, "")
    assert err.startswith("error: unknown output type 'onnx': accepted are ")


@pytest.mark.new_interpreter
@pytest.mark.parametrize(
    "arguments, imported",
    [
        (["--version"], []),
        (["--help"], []),
        (["import", "--help"], []),
        (["pipelines", "--output-type", "tosa"], ["torch_mlir", "numpy"]),
    ],
)
def test_start_up_imports_neither_torch_nor_bindings_in_vain(arguments: list[str], imported: list[str]):
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print([m for m in ('torch', 'torch_mlir', 'numpy') if m in sys.modules]))\n"
        "from fx_importer.cli import main\n"
        f"sys.argv[1:] = {arguments}\n"
        "main()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == str(imported)


@pytest.mark.parametrize(
    "command", [[str(Path(sys.executable).with_name("fx-importer"))], [sys.executable, "-m", "fx_importer"]]
)
def test_entry_points(command: list[str]):
    ran = subprocess.run([*command, "pipelines", "--output-type", "raw"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("raw\n")
    failed = subprocess.run([*command, "pipelines", "--output-type", "no"], capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert "'no'" in failed.stderr


def test_errors_name_options_and_keep_source_lines() -> None:
    message = "\n".join(
        (
            "stage 'linalg' failed (strict=False):",
            "  aten.foo(f32[2]) -> f32[2]",
            "    at model.py:3: return load(weights='best', strict=True)",
            "    try: fallback='stablehlo': only this operator is lowered to it",
            "  error: failed",
            "      at model.py:3",
            "          return load(weights='best', strict=True)",
        )
    )
    lines = with_options(message).splitlines()
    assert lines[0] == "stage 'linalg' failed (without --strict):"
    assert lines[2].endswith("load(weights='best', strict=True)")
    assert lines[3] == "    try: --fallback stablehlo: only this operator is lowered to it"
    assert lines[6].endswith("load(weights='best', strict=True)")


def test_other_packages_warn_only_with_debug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "warnoptions", [])
    shown: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda _message, _category, file, *_rest: shown.append(file))
    monkeypatch.setattr(logging.lastResort, "level", logging.WARNING)
    run(monkeypatch, capsys, "cache")
    for file in ("/venv/site-packages/torchao/init.py", "/home/me/model.py"):
        warnings.showwarning(UserWarning("of a file"), UserWarning, file, 1)
    assert shown == ["/home/me/model.py"]
