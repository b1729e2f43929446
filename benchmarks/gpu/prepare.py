"""Lower the models of `benchmarks.gpu.models` on a machine without a GPU, and pack what the device needs.

    python -m benchmarks.gpu.prepare FOLDER                # all models in all dtypes; what is there is not made again
    python -m benchmarks.gpu.prepare FOLDER --only lstm --dtypes bf16 --platform cpu --iree cpu

For each model there is a bundle of StableHLO without weights, which `benchmarks.gpu.run` passes; and a module that IREE
has compiled, with its weights as parameters, unless ``--iree none``. ``prepared.json`` says what failed, and why.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.models import CASES, DTYPES, TINY, build
from fx_importer import FxImporterError, lower

HERE = Path(__file__).parent


def prepare(folder: Path, name: str, dtype: str, platform: str, iree: str) -> dict[str, Any]:
    """Lower a model, and write its files to ``folder``; return what happened, for ``prepared.json``."""
    model, inputs = build(name, dtype)
    row: dict[str, Any] = {"model": name, "dtype": dtype}
    start = time.perf_counter()
    common: dict[str, Any] = {"weights": "external", "mutation": "functional", "fold": False}
    try:
        lowered = lower(model, *inputs, output_type="stablehlo", **common)
        lowered.save_bundle(folder, platform=platform, weights=False)
        row["lowered"] = time.perf_counter() - start
    except FxImporterError as error:
        row["error"] = _sentence(error)
    if iree != "none" and "error" not in row:
        start = time.perf_counter()
        try:
            compiled = lower(model, *inputs, output_type="linalg-on-tensors", **common).compile(iree)
            compiled.save(folder / "model.vmfb")
            row |= {"iree": time.perf_counter() - start, "dispatches": compiled.dispatches}
            row["matrix_instructions"] = compiled.matrix_instructions
        except FxImporterError as error:
            row["iree_error"] = _sentence(error)
    return row


def _sentence(error: FxImporterError) -> str:
    return " ".join(str(error).split())[:300]


def main() -> None:
    """Prepare all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=[*CASES, *TINY])
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES), choices=list(DTYPES))
    parser.add_argument("--platform", default="cuda", help="jax's platform")
    parser.add_argument("--iree", default="cuda:sm_90", help="the target of Lowered.compile, or none")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for each in ("run.py", "models.py", "jax_models.py"):
        shutil.copy(HERE / each, arguments.folder)
    path = arguments.folder / "prepared.json"
    record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": []}
    record["commit"] = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    ).stdout.strip()
    done = {(row["model"], row["dtype"]) for row in record["rows"]}
    for name in arguments.only:
        for dtype in arguments.dtypes:
            if (name, dtype) not in done:
                row = prepare(arguments.folder / f"{name}-{dtype}", name, dtype, arguments.platform, arguments.iree)
                record["rows"].append(row)
                print(json.dumps(row), flush=True)
                path.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
