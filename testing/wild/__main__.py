"""``python -m testing.wild``: lower the wild models, each in a process with limits, and write the page of results."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from testing.wild.environment import make_environment
from testing.wild.models import COMMON, MODELS, WildModel
from testing.wild.one_model import OUTPUT_TYPES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/measurements/wild.md"
SECONDS = 240


def run_model(python: Path, name: str) -> dict[str, str]:
    """Return the result of a model, from a process with a limit of time and memory."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [python, "-W", "ignore", "-m", "testing.wild.one_model", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT, env=environment)
    except subprocess.TimeoutExpired:
        return {"built": f"took more than {SECONDS} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"built": f"the process ended with {done.returncode}: {done.stderr.strip()[-200:]}"}
    return json.loads(lines[-1])


def page_of(results: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page: counts, and a row for each model."""
    built = [each for each in results.values() if each["built"] == "yes"]
    captured = [each for each in built if _is_captured(each)]
    in_functions = [each for each in built if "equal eager" in each.get("functions", "")]
    first = OUTPUT_TYPES[0]
    counts = {
        "models of the table that were run": f"{len(results)} of {len(MODELS)}",
        "built": len(built),
        "captured as one graph": len(captured),
        "of these, under assumptions": sum("assumption" in each["captured"] for each in captured),
        "captured as functions with Python between them only": len(in_functions),
        f"{first}: equals eager": sum(each.get(first) == "equals eager" for each in captured),
        f"{first}: wrong numbers": sum(each.get(first, "").startswith("WRONG") for each in captured),
        **{f"{kind}: lowers": sum(each.get(kind) == "lowers" for each in captured) for kind in OUTPUT_TYPES[1:]},
        "dynamic batch lowers": sum(each.get("dynamic batch") == "lowers" for each in captured),
    }
    columns = ("built", "captured", "functions", *OUTPUT_TYPES, "dynamic batch")
    rows = [
        "| "
        + " | ".join((f"`{row.package}`", row.category, *(_cell(results[row.name].get(each, "")) for each in columns)))
        for row in MODELS
        if row.name in results
    ]
    return "\n".join(
        [
            "# Models of packages that CI does not install",
            "",
            "Written by `python -m testing.wild`, which `make nightly` runs: each model in a process of its own, with",
            f"limits of {SECONDS} s and 12 GiB. The table of models is `testing/wild/models.toml`.",
            "",
            "| | |",
            "|---|---:|",
            *(f"| {name} | {count} |" for name, count in counts.items()),
            "",
            "| package | category | " + " | ".join(columns) + " |",
            "|---" * (len(columns) + 2) + "|",
            *(f"{row} |" for row in rows),
            "",
        ]
    )


def _is_captured(result: Mapping[str, str]) -> bool:
    return result.get("captured", "") == "yes" or result.get("captured", "").endswith("assumptions")


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("<", "&lt;")[:90]


def main() -> None:
    """Run the models that are named, or all, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m testing.wild", description=__doc__)
    parser.add_argument("names", nargs="*", help="models to run; by default all")
    parser.add_argument("--environment", type=Path, default=ROOT / "build/wild", help="the virtual environment")
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args()
    rows: list[WildModel] = [row for row in MODELS if not arguments.names or row.name in arguments.names]
    python, failures = make_environment(arguments.environment, (*COMMON, *(row.package for row in rows)))
    results: dict[str, dict[str, str]] = {}
    for row in rows:
        failure = failures.get(row.package)
        results[row.name] = {"built": f"not installed: {failure}"} if failure else run_model(python, row.name)
        print(row.name, results[row.name], flush=True)
        arguments.page.write_text(page_of(results), encoding="utf-8")


if __name__ == "__main__":
    main()
