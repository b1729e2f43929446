"""``--report``, ``--print-ir-...`` and ``--timing``, and the layout of ``--help``."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command

from fx_importer.cli import app, main
from fx_importer.cli.help_layout import EXAMPLES, SECTIONS
from fx_importer.diagnostics.ir_printer import diff_lines, pass_name

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    (tmp_path / "followed.py").write_text(
        "import torch\n\ndef good():\n    return torch.nn.Softmax(-1), (torch.ones(2, 3),)\n\n"
        "def gamma(x):\n    return torch._standard_gamma(x)\n\ndef bad():\n    return gamma, (torch.ones(2),)\n"
    )
    monkeypatch.chdir(tmp_path)

    def run_(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["fx-importer", *arguments])
        with pytest.raises(SystemExit) as exit:
            main()
        output = capsys.readouterr()
        return int(exit.value.code or 0), output.out, output.err

    return run_


GOOD = ("import", "followed:good", "-o", "m.mlir", "--output-type", "linalg")


def test_ir_after_a_pass_and_a_stage(run: Run):
    code, _, err = run(*GOOD, "--print-ir-after", "convert-torch-to-linalg", "--print-ir-after", "frontend")
    assert code == 0
    assert re.findall(r"^// -+ after (.*) -+$", err, re.MULTILINE) == [
        "stage 'frontend'",
        "pass 'convert-torch-to-linalg' in stage 'linalg'",
    ]
    assert "aten.softmax.int(" in err
    assert "linalg.generic" in err


def test_only_changes(run: Run):
    _, _, every = run(*GOOD, "--print-ir-after", "canonicalize")
    _, _, changes = run(*GOOD, "--print-ir-after", "canonicalize", "--print-ir-after-change")
    assert 0 < changes.count("// -----") < every.count("// -----")


def test_diff(run: Run):
    _, _, err = run(*GOOD, "--print-ir-diff")
    parts = re.split(r"^// -----.*\n", err, flags=re.MULTILINE)[2:]  # the first program is printed as a whole
    assert all("\n-" in f"\n{each}" or "\n+" in each or "func.func" in each for each in parts)
    assert "-  %softmax = aten.softmax.int(" in err


def test_timing(run: Run):
    _, _, err = run(*GOOD, "--timing")
    rows = [line.split() for line in err.splitlines()]
    assert rows[0][:3] == ["stage", "and", "pass"]
    names = [each[0] for each in rows]
    assert names.index("frontend") < names.index("linalg") < names.index("convert-torch-to-linalg") < names.index("all")
    shares = [float(each[2].rstrip("%")) for each in rows[1:-1] if each[0] in ("frontend", "decompositions", "linalg")]
    assert 0 < sum(shares) <= 100


def test_diagnosis_is_not_printed(run: Run):
    code, _, err = run(
        "import", "followed:bad", "-o", "m.mlir", "--output-type", "tosa", "--print-ir-after", "canonicalize"
    )
    assert code == 1
    stages = re.findall(r"after pass 'canonicalize' in stage '(.*)'", err)
    once = [stage for stage, _ in itertools.groupby(stages)]
    assert once[0] == "torch-backend"
    assert len(once) == len(set(once))


def test_mistakes(run: Run):
    code, _, err = run(*GOOD, "--print-ir-after", "canonicalise")
    assert code == 2
    assert "no pass or stage is named canonicalise" in err
    code, _, err = run(*GOOD, "--timing", "--isolate")
    assert code == 2
    assert "--isolate" in err
    code, _, err = run(*GOOD, "--report", "report.txt")
    assert code == 2
    assert not Path("m.mlir").exists()
    _, _, err = run(*GOOD, "--print-ir-after", "convert-torch-to-tosa")
    assert "warning: --print-ir-after: not run: convert-torch-to-tosa" in err


def test_report(run: Run):
    code, _, _ = run(*GOOD, "--report", "good.json")
    found = json.loads(Path("good.json").read_text())
    assert (code, found["outcome"]) == (0, "lowered")
    assert found["title"] == "followed:good"
    assert found["functions"]["main"].endswith("-> (output: float32[2, 3])")
    code, _, _ = run("import", "followed:bad", "-o", "bad.mlir", "--output-type", "tosa", "--report", "bad.json")
    found = json.loads(Path("bad.json").read_text())
    assert (code, found["outcome"]) == (1, "failed")
    assert found["problems"][0]["operator"] == "aten._standard_gamma.default"
    assert found["not_reached"]


def test_report_of_a_verification(run: Run):
    code, _, _ = run("verify", "followed:good", "--backend", "jit", "--rtol", "0", "--atol", "0", "--report", "v.json")
    found = json.loads(Path("v.json").read_text())
    (check,) = found["checks"]
    assert check["status"] == ("mismatch" if code else "passed")
    assert len([each for each in found["stages"] if each["name"] == "importing"]) == 1


def _beyond(text: str) -> list[str]:
    """Return the lines that are cut or longer than 80 columns, after the first, which has the command's synopsis."""
    return [line for line in text.splitlines()[1:] if line.endswith("...") or len(line) > 80]


def test_help_has_every_command_and_an_example_in_eighty_columns(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run("--help")
    listed = [line.split()[0] for line in out.splitlines() if re.match(r"  [a-z]", line)]
    assert listed == [each for names in SECTIONS.values() for each in names]
    assert set(listed) == set(get_command(app).commands)  # pyright: ignore[reportAttributeAccessIssue]
    for path, example in EXAMPLES.items():
        code, out, _ = run(*path.split(), "--help")
        assert code == 0
        assert out.rstrip().endswith(f"Example:\n  {example}")
        flags = {each for each in example.split() if each.startswith("-")}
        assert all(each in out for each in flags)
        assert not _beyond(out)
    assert not _beyond(run("--help")[1]) + _beyond(run("llm", "--help")[1])
    assert {each.split()[0] for each in EXAMPLES} == {each for names in SECTIONS.values() for each in names}


def test_pass_names():
    assert pass_name("func.func(canonicalize{top-down=true})") == "canonicalize"
    assert pass_name("cse") == "cse"
    assert pass_name("builtin.module(func.func(a-b{x=f(y)}))") == "a-b"


def test_diff_ignores_numbers_of_values():
    assert list(diff_lines("%0 = a\n%1 = b %0", "%3 = a\n%4 = b %3")) == []
    assert list(diff_lines("%0 = a", "%0 = c")) == ["@@ -1,1 +1,1 @@", "-%0 = a", "+%0 = c"]
