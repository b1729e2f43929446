"""``fx-importer import``: files written, and messages for mistakes."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fx_importer.cli import main
from fx_importer.manifest import Manifest
from fx_importer.mlir.bindings import ir, new_context

MODELS = """
    import torch
    from torch import nn

    @torch.library.custom_op("models::frobnicate", mutates_args=())
    def frobnicate(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @frobnicate.register_fake
    def _(x):
        return torch.empty_like(x)

    class Twice(nn.Module):
        def forward(self, x, offset=0.0):
            return 2 * x + offset

    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    class Branches(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    X = torch.ones(3)

    def args(): return Twice(), (X,)
    def args_as_list(): return Twice(), [X]
    def kwargs(): return Twice(), (X,), {"offset": 1.0}
    def counts(): return Counts(), (X,)
    def misshapen(): return nn.Linear(2, 2), (torch.ones(1, 3),)
    def branches(): return Branches(), (X,)
    def foreign(): return lambda x: frobnicate(x), (X,)
    def too_few(): return Twice(), ()
    def model_only(): return Twice()
    def tensor_for_args(): return Twice(), X
    def raises(): raise ValueError("no weights here")
    def leaves(): raise SystemExit("usage: models.py")
    def needs(path): return Twice(), (X,)

    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.held = nn.Parameter(torch.arange(3.0))

        def forward(self, x):
            return x + self.held

    def holds(): return Holds(), (X,)
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command line in an empty directory with ``models.py``: exit code, out, err."""
    (tmp_path / "models.py").write_text(textwrap.dedent(MODELS))
    (tmp_path / "broken.py").write_text("import torch\n\nimport no_such_module\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("models", "broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fx-importer", *arguments])
        with pytest.raises(SystemExit) as exit:
            main()
        out, err = capfd.readouterr()
        return int(exit.value.code or 0), out, err

    return run


@pytest.mark.parametrize("name", ["args", "args_as_list", "kwargs"])
def test_callable_returns_the_model_and_its_inputs(run: Run, name: str):
    code, out, err = run("import", f"models:{name}", "-o", "out.mlir")
    assert (code, err) == (0, "")
    assert "arith.mulf" in Path("out.mlir").read_text()
    assert re.fullmatch(r"out\.mlir: linalg-on-tensors \(default\), [\d,]+ bytes, \d+\.\d\d s\n", out)


def test_exported_program_is_imported(run: Run):
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.tanh()

    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(Model(), (torch.zeros(4, 3),), dynamic_shapes=({0: batch},))
    torch.export.save(program, "model.pt2")
    code, _, err = run("import", "model.pt2", "--output-type", "tosa", "-o", "out.mlir")
    assert (code, err) == (0, "")
    assert "tosa.tanh" in Path("out.mlir").read_text()
    assert "tensor<?x3xf32>" in Path("out.mlir").read_text()


def test_bytecode(run: Run):
    assert run("import", "models:args", "-o", "out.mlirbc")[0] == 0
    with new_context() as context:
        assert "arith.mulf" in str(ir.Module.parse(Path("out.mlirbc").read_bytes(), context))


def test_standard_output_has_the_text_only(run: Run):
    code, out, err = run("import", "models:args", "-o", "-")
    assert (code, err) == (0, "")
    assert out.startswith(("module", "#map"))
    with new_context() as context:
        assert ir.Module.parse(out, context).operation.verify()


def test_options_reach_the_compilation(run: Run):
    flags = ["--func-name", "forward", "--mutation", "functional", "--output-type", "Torch"]
    assert run("import", "models:counts", "-o", "out.mlir", *flags)[0] == 0
    text = Path("out.mlir").read_text()
    assert "func.func @forward(" in text
    assert text.count("!torch.vtensor<[],f32>") > 1


def test_manifest_is_written(run: Run):
    flags = ["--mutation", "functional", "--manifest", "out.json"]
    assert run("import", "models:counts", "-o", "out.mlir", *flags)[0] == 0
    assert list(Manifest.from_json(Path("out.json").read_text()).state) == ["calls"]
    assert not list(Path().glob(".out*"))


def test_external_weights_are_linked(run: Run):
    flags = ["--output-type", "tosa", "--weights", "external", "--weights-file", "w.safetensors"]
    assert run("import", "models:holds", "-o", "out.mlirbc", *flags)[0] == 0
    assert run("import", "models:holds", "-o", "inline.mlir", "--output-type", "tosa")[0] == 0
    assert sorted(each.name for each in Path().glob("out.*")) == ["out.manifest.json", "out.mlirbc"]
    for weights in ([], ["--weights", "w.safetensors"], ["--manifest", "out.manifest.json"]):
        code, out, err = run("link", "out.mlirbc", "-o", "linked.mlir", *weights)
        assert (code, err) == (0, "")
        assert out.startswith("linked.mlir: ")
        assert 'held: "0x04000000000000000000803F' in Path("linked.mlir").read_text()
    Path("w.safetensors").unlink()
    code, out, err = run("link", "out.mlirbc", "-o", "again.mlir")
    assert (code, out) == (2, "")
    assert "there is no file 'w.safetensors'" in err
    assert not Path("again.mlir").exists()


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--weights-file", "w.safetensors"], "pass --weights external or args"),
        (["--weights", "args", "--manifest", "m.json"], "it goes beside the module, to 'out.manifest.json'"),
        (["--weights", "outside"], "unknown weights policy 'outside': accepted are 'inline', 'external', 'args'"),
        (["--weights", "args", "--weights-file", "w.bin"], "cannot write weights to 'w.bin', which is not there"),
        (["--weights", "args", "--weights-file", "no/w.safetensors"], "the directory 'no' does not exist"),
    ],
    ids=["inline", "manifest", "unknown", "suffix", "directory"],
)
def test_weights_that_cannot_be_written(run: Run, monkeypatch: pytest.MonkeyPatch, flags: list[str], message: str):
    monkeypatch.setattr("fx_importer.cli.commands.import_model.lower_model", lambda *_: 1 / 0)  # not called
    assert_mistake(run("import", "models:holds", "-o", "out.mlir", *flags), 2, message)
    assert not list(Path().glob("out*"))


def test_artifact_names_no_weights(run: Run):
    flags = ["--output-type", "stablehlo", "--weights", "external"]
    ran = run("import", "models:holds", "-o", "out.stablehlo", *flags, "--weights-file", "w.safetensors")
    assert_mistake(ran, 2, "and for external ones a .mlir or .mlirbc file")
    ran = run("link", "models.py", "-o", "linked.stablehlo")
    assert_mistake(ran, 2, "the suffix must be .mlir (text) or .mlirbc (bytecode)")


def test_unwritable_manifest_is_an_error(run: Run):
    ran = run("import", "models:args", "-o", "out.mlir", "--manifest", "no/out.json")
    assert_mistake(ran, 2, "the directory 'no' does not exist")


def test_existing_file_is_replaced(run: Run):
    Path("out.mlir").write_text("old")
    assert run("import", "models:args", "-o", "out.mlir")[0] == 0
    assert "module" in Path("out.mlir").read_text()


def zip_of_other_content(path: Path) -> None:
    torch.save({"weight": torch.zeros(2)}, path)


def not_a_zip(path: Path) -> None:
    path.write_text("module {}")


def truncated_zip(path: Path) -> None:
    torch.export.save(torch.export.export(torch.nn.Tanh(), (torch.zeros(2),)), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def from_another_torch(path: Path) -> None:
    """An exported program whose schema version is not one that this torch reads."""
    import json
    import zipfile

    torch.export.save(torch.export.export(torch.nn.Tanh(), (torch.zeros(2),)), path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name, content in members.items():
        if name.endswith("/models/model.json"):
            program = json.loads(content)
            program["schema_version"]["major"] = 999
            members[name] = json.dumps(program).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    "write, sentence",
    [
        (zip_of_other_content, "it is a zip archive without an exported program"),
        (not_a_zip, "is not what torch.export.save writes: it is not a whole zip archive"),
        (truncated_zip, "is not what torch.export.save writes: it is not a whole zip archive"),
        (from_another_torch, "cannot read 'model.pt2': "),
    ],
)
def test_not_an_exported_program(run: Run, write: Callable[[Path], None], sentence: str):
    write(Path("model.pt2"))
    assert_mistake(run("import", "model.pt2", "-o", "out.mlir"), 2, sentence)


@pytest.mark.parametrize(
    "model, sentence",
    [
        ("absent.pt2", "there is no file 'absent.pt2'"),
        (
            "model",
            "'model' names no model: MODEL is a .pt2 file that torch.export.save wrote, or package.module:callable",
        ),
        ("absent:build", "there is no module 'absent' in "),
        ("models.absent:build", "there is no module 'models.absent' in "),
        ("broken:build", "broken.py:3: ModuleNotFoundError: No module named 'no_such_module'"),
        ("models:argz", "models.py) has no 'argz'; did you mean 'args'?"),
        ("models:X", "'models:X' is a Tensor, which cannot be called"),
        ("models:raises", "models.py:42: ValueError: no weights here"),
        ("models:leaves", "models.py:43: SystemExit: usage: models.py"),
        ("models:needs", "calling 'models:needs' without arguments failed: TypeError: needs() missing 1 required"),
        (
            "models:model_only",
            "'models:model_only' returned a Twice: it must return (model, args) or (model, args, kwargs)",
        ),
        ("models:tensor_for_args", "returned a tuple of (Twice, Tensor): it must return (model, args) or"),
        ("models:too_few", "cannot be called with these inputs: missing a required argument: 'x'"),
    ],
)
def test_invalid_model(run: Run, model: str, sentence: str):
    assert_mistake(run("import", model, "-o", "out.mlir"), 2, sentence)


@pytest.mark.parametrize(
    "output, sentence",
    [
        ("absent/out.mlir", "cannot save to 'absent/out.mlir': the directory 'absent' does not exist"),
        ("out.txt", "cannot save to 'out.txt': the suffix must be .mlir (text), .mlirbc (bytecode) or .stablehlo"),
        ("models.py/out.mlir", "cannot save to 'models.py/out.mlir': the directory 'models.py' does not exist"),
        ("/proc/out.mlir", "cannot save to '/proc/out.mlir': "),
    ],
)
def test_unwritable_output_is_an_error(run: Run, output: str, sentence: str):
    assert_mistake(run("import", "models:args", "-o", output), 2, sentence)


def test_locations_are_an_option(run: Run):
    assert run("import", "models:args", "-o", "out.mlir", "--locations")[0] == 0
    assert "models.py" in Path("out.mlir").read_text()
    assert run("import", "models:args", "-o", "out.mlir")[0] == 0
    assert "loc(" not in Path("out.mlir").read_text()


def test_suffix_of_an_artifact_chooses_stablehlo(run: Run):
    assert run("import", "models:args", "-o", "out.stablehlo")[1].startswith("out.stablehlo: stablehlo (default), ")
    ran = run("import", "models:args", "-o", "out.stablehlo", "--output-type", "tosa")
    assert ran[0] == 2
    assert "a portable artifact, which holds StableHLO: --output-type stablehlo" in ran[2]


def test_output_is_checked_before_the_model(run: Run):
    # The model is invalid too; the output is checked first.
    assert_mistake(run("import", "models:raises", "-o", "absent/out.mlir"), 2, "the directory 'absent' does not exist")


@pytest.mark.parametrize(
    "flags, sentence",
    [
        (
            ["--output-type", "onnx"],
            "unknown output type 'onnx': accepted are 'raw', 'torch', 'linalg-on-tensors', 'tosa'",
        ),
        (["--mutation", "ignore"], "unknown mutation policy 'ignore': accepted are 'error', 'functional', 'mutable'"),
        (
            ["--output-type", "torch", "--backend-legal-ops", "aten.no_such_op"],
            "the torch dialect has no op 'aten.no_such_op'",
        ),
        (["--output-typ", "tosa"], "No such option: --output-typ"),
    ],
)
def test_invalid_option(run: Run, flags: list[str], sentence: str):
    assert_mistake(run("import", "models:args", "-o", "out.mlir", *flags), 2, sentence)


def test_the_output_must_be_named(run: Run):
    assert_mistake(run("import", "models:args"), 2, "Missing option '--output' / '-o'")


@pytest.mark.parametrize(
    "model, output_type, sentence",
    [
        ("models:misshapen", "raw", "must have same reduction dim, but got [1, 3] X [2, 2]"),
        ("models:counts", "raw", "calls"),
        ("models:foreign", "tosa", "models.frobnicate"),
    ],
)
def test_model_that_cannot_be_lowered_is_an_error(run: Run, model: str, output_type: str, sentence: str):
    assert_mistake(run("import", model, "-o", "out.mlir", "--output-type", output_type), 1, sentence)


def test_debug_shows_the_traceback(run: Run):
    code, _, err = run("--debug", "import", "models:raises", "-o", "out.mlir")
    assert code == 2
    assert "Traceback" in err
    assert 'raise ValueError("no weights here")' in err


def assert_mistake(ran: tuple[int, str, str], expected_code: int, sentence: str) -> None:
    """Check the exit code and the message, and that there is no traceback and no new file."""
    code, out, err = ran
    assert sentence in err
    assert (code, out) == (expected_code, "")
    assert "Traceback" not in err
    assert not [path for path in Path().iterdir() if path.name not in ("models.py", "broken.py", "model.pt2")]


def test_operator_stubs_are_listed(run: Run):
    arguments = ("--output-type", "tosa", "--unsupported", "outline", "-o", "out.mlir", "--manifest", "out.json")
    code, out, err = run("import", "models:foreign", *arguments)
    assert (code, out.startswith("out.mlir: tosa, ")) == (0, True)
    name, place = err.splitlines()
    assert name == "fallback_models_frobnicate_default_0: PyTorch runs models.frobnicate.default"
    assert "models.py:" in place
    assert "func.func private @fallback_models_frobnicate_default_0(tensor<3xf32>)" in Path("out.mlir").read_text()
    (stub,) = Manifest.from_json(Path("out.json").read_text()).operator_stubs.values()
    assert stub.operator == "models.frobnicate.default"


def test_cache(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", str(tmp_path / "cache"))
    for cached in (False, True):
        code, out, _ = run("import", "models:args", "-o", "out.mlir", "--output-type", "linalg")
        assert (code, out.endswith(" s, from the cache\n")) == (0, cached)
    assert ": 1 entries, " in run("cache")[1]
    assert run("cache", "--clear")[1].endswith("removed 1 entries\n")
    assert run("import", "models:args", "-o", "out.mlir", "--output-type", "linalg", "--no-cache")[0] == 0
    assert ": 0 entries, " in run("cache")[1]


def test_cache_directory_that_is_a_file(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", "models.py")
    for flags in ([], ["--clear"]):
        assert_mistake(run("cache", *flags), 2, "'models.py' is not a directory: name one in FX_IMPORTER_CACHE_DIR")
