"""The package beside releases of torch and of Python: an environment for each pair, a slice of the tests, the demo.

    python -m benchmarks.version_matrix --json versions.json            # each pair, a row; resumes
    python -m benchmarks.version_matrix --json versions.json --write    # the table of docs/versions.md
    python -m benchmarks.version_matrix --only 3.11:newest              # one pair; fails if a test does

The slice is `SLICE`: export, import, the torch dialect, control flow, symbolic sizes and results. ``newest`` is the
newest torch that pyproject.toml accepts. uv makes the environments, each of which is deleted when its tests have run;
``--python`` names interpreters that it does not find. torch from PyPI has CUDA: 5 GB with NVIDIA's packages.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.rows import DOCS, Row, add_row, parser_of, read_rows, renew

PAGE = DOCS / "versions.md"
SECTION = "benchmarks/version_matrix.py --write"
ROOT = Path(__file__).parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
TORCHES = ("2.12.1", "2.13.0", "2.14.1", "2.15.0")
PACKAGES = ("torch", "torch-mlir", "numpy", "transformers")
SLICE = (
    *("tests/frontend", "tests/importing", "tests/mlir", "tests/fx_graph", "tests/decompositions/engine"),
    *("tests/e2e/test_results.py", "tests/e2e/test_symbolic.py", "tests/e2e/test_control_flow.py"),
)
_VERSIONS = f"""
import json, platform
from importlib.metadata import version
print(json.dumps({{"python": platform.python_version()}} | {{each: version(each) for each in {PACKAGES}}}))
"""
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|error)")


def measure(python: str, torch: str, given: argparse.Namespace) -> Row:
    """Return the row of a pair: versions, counts of tests, and how far the demo is from eager.

    Args:
        python: a version, or the path of an interpreter.
        torch: a version, or ``newest``.
        given: the tests, the number of processes of pytest, and the seconds that installing may take.
    """
    with tempfile.TemporaryDirectory(prefix="fx-importer-") as folder:
        start = time.monotonic()
        interpreter = Path(folder, "venv/bin/python")
        requirement = "torch" if torch == "newest" else f"torch=={torch}"
        made = _run("uv", "venv", "--quiet", "--no-python-downloads", "--python", python, f"{folder}/venv")
        if made.returncode == 0:
            install = ("uv", "pip", "install", "--quiet", "--python", interpreter, requirement)
            try:
                made = _run(*install, "--editable", f"{ROOT}[demo,test]", "uv", timeout=given.seconds)
            except subprocess.TimeoutExpired:
                return {"not installed": f"in {given.seconds:g} s"}
        if made.returncode:
            return {"not installed": _reason(made.stderr)}
        row: Row = json.loads(_run(interpreter, "-c", _VERSIONS).stdout) | {"seconds": time.monotonic() - start}
        tests = _run(interpreter, "-m", "pytest", "-q", "-n", given.workers, "-p", "no:cacheprovider", *given.tests)
        row |= {name.removesuffix("s"): int(count) for count, name in _COUNT.findall(tests.stdout.splitlines()[-1])}
        row["failures"] = [line for line in tests.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        if tests.returncode and not row["failures"]:
            row["failures"] = [f"pytest: {(tests.stderr or tests.stdout).strip().splitlines()[-1]}"]
        demo = _run(interpreter, "-m", "fx_importer", "demo", cwd=folder)
        difference = re.search(r"largest difference from eager PyTorch is (\S+);", demo.stdout)
        row["demo"] = difference[1] if difference and demo.returncode == 0 else f"fails: {_reason(demo.stderr)}"
        return row


def _run(*command: object, cwd: object = ROOT, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "VIRTUAL_ENV": ""}
    if command[0] == "uv":
        command = (sys.executable, "-m", *command)
    options = {"cwd": str(cwd), "env": environment, "timeout": timeout}
    return subprocess.run([*map(str, command)], **options, text=True, capture_output=True, check=False)


def _reason(stderr: str) -> str:
    """Return the end of what uv or the demo says: uv draws a tree of reasons, whose last is the cause."""
    lines = [line.strip(" │├╰─▶×") for line in stderr.splitlines() if line.strip()]
    return " ".join(lines[-3:])[:300]


def passes(row: Row) -> bool:
    """Return whether all that ran of a pair passed: nothing, if it cannot be installed, which the row says."""
    return "not installed" in row or not (row["failures"] or row["demo"].startswith("fails"))


def table(rows: list[Row]) -> str:
    """Return the table of docs/versions.md: a row for each Python, a column for each torch."""
    releases = sorted({row["asked"][1] for row in rows}, key=TORCHES.index)
    shown = {
        each: next((row["torch"].partition("+")[0] for row in rows if row["asked"][1] == each and "torch" in row), each)
        for each in releases
    }
    lines = ["", "| Python | " + " | ".join(f"torch {shown[each]}" for each in releases) + " |"]
    lines.append("|---|" + "---|" * len(releases))
    for python in dict.fromkeys(row["asked"][0] for row in rows):
        found = {row["asked"][1]: row for row in rows if row["asked"][0] == python}
        name = next((row["python"] for row in found.values() if "python" in row), python)
        lines.append(f"| {name} | " + " | ".join(_cell(found.get(each)) for each in releases) + " |")
    return "\n".join([*lines, "", ""])


def _cell(row: Row | None) -> str:
    if row is None:
        return "not run"
    if "not installed" in row:
        return "no wheel" if "no wheels" in row["not installed"] else "not installed"
    passed = row.get("passed", 0)
    skipped = f", {row['skipped']} skipped" if row.get("skipped") else ""
    return f"{passed} of {passed + row.get('failed', 0) + row.get('error', 0)}{skipped}; demo {row['demo']}"


def main() -> int:
    """Run the pairs that the file does not have, or write the page. Return 1 if a pair that was run does not pass."""
    parser = parser_of(__doc__, PAGE)
    pairs = [f"{python}:{torch}" for python in PYTHONS for torch in TORCHES]
    parser.add_argument("--only", nargs="*", default=pairs, metavar="PYTHON:TORCH", help="pairs, as 3.11:newest")
    parser.add_argument(
        "--python", nargs="*", default=[], type=Path, help="paths of interpreters that uv does not find"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tests", nargs="+", default=SLICE, metavar="PATH", help="other tests than the slice")
    parser.add_argument("--seconds", type=float, help="how long installing may take; a pair that takes longer is said")
    given = parser.parse_args()
    rows = read_rows(given.json)
    if given.write:
        renew(PAGE, SECTION, table(sorted(rows, key=_position)))
        return 0
    paths: dict[str, str] = {_version_of(path): str(path) for path in given.python}
    failed = False
    for pair in given.only:
        python, _, torch = pair.partition(":")
        if any(row["asked"] == [python, torch] for row in rows):
            continue
        interpreter = str(paths.get(python, python))
        row = {"asked": [python, torch]} | measure(interpreter, torch, given)
        print(json.dumps(row), flush=True)
        add_row(given.json, row)
        failed |= not passes(row)
    return int(failed)


def _position(row: Row) -> tuple[int, int]:
    return PYTHONS.index(row["asked"][0]), TORCHES.index(row["asked"][1])


def _version_of(interpreter: Path) -> str:
    text = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([interpreter, "-c", text], text=True, capture_output=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
