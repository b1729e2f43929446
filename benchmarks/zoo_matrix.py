"""Model × output type over the zoo: what lowers, how long it takes, and how far linalg on the JIT is from eager.

    python -m benchmarks.zoo_matrix [--models bert_small,unet] [--dynamic] [--small] [--json FILE]

Each model runs in a process of its own: a native crash is a row of the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OUTPUT_TYPES = ("raw", "torch", "tosa", "linalg-on-tensors", "stablehlo")


def measure(name: str, dynamic: bool) -> dict[str, Any]:
    """Lower one model to every output type in this process, and run what is linalg. Returns a row of the table."""
    import torch
    from torch.utils import _pytree as pytree

    from benchmarks.zoo import ZOO
    from fx_importer import FxImporterError, lower

    entry = ZOO[name]
    model, args, kwargs = entry.build()
    shapes = entry.dynamic_shapes if dynamic else None
    program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
    row: dict[str, Any] = {"nodes": len(program.graph.nodes)}
    for output_type in OUTPUT_TYPES:
        start = time.process_time()
        try:
            lowered = lower(program, output_type=output_type)
        except FxImporterError as error:
            row[output_type] = str(error).splitlines()[:4]
            continue
        row[output_type] = round(time.process_time() - start, 2)
        if output_type == "linalg-on-tensors":
            with torch.no_grad():
                pairs = zip(
                    pytree.tree_leaves(lowered.run(*args, **kwargs)),
                    pytree.tree_leaves(model(*args, **kwargs)),
                    strict=True,
                )
                row["relative error"] = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    return row


def in_a_process(name: str, dynamic: bool, seconds: float) -> dict[str, Any]:
    """Return the row of one model, measured in a child process."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.zoo_matrix", "--models", name, "--measure"]
    try:
        done = subprocess.run(
            [*command, *(["--dynamic"] if dynamic else [])],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"died": f"after {seconds:.0f} s"}
    if done.returncode != 0:
        return {"died": f"exit code {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"}
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit code is 1 if any cell failed."""
    from benchmarks.zoo import ZOO

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help="names, separated by commas; all by default")
    parser.add_argument("--small", action="store_true", help="the small variants only")
    parser.add_argument("--dynamic", action="store_true", help="with a dynamic batch")
    parser.add_argument("--seconds", type=float, default=900, help="time limit for one model")
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = options.models.split(",") if options.models else [n for n, z in ZOO.items() if z.small or not options.small]
    if options.measure:
        print(json.dumps(measure(names[0], options.dynamic)))
        return 0
    if options.dynamic:
        names = [name for name in names if ZOO[name].dynamic_shapes is not None]
    rows = {}
    print(f"{'model':24}" + "".join(f"{kind:>19}" for kind in OUTPUT_TYPES) + f"{'relative error':>16}")
    for name in names:
        row = rows[name] = in_a_process(name, options.dynamic, options.seconds)
        cells = [f"{row[kind]:.2f} s" if isinstance(row.get(kind), float) else "failed" for kind in OUTPUT_TYPES]
        error = f"{row['relative error']:.1e}" if "relative error" in row else "-"
        print(f"{name:24}" + "".join(f"{cell:>19}" for cell in cells) + f"{error:>16}", flush=True)
        for kind in ("died", *OUTPUT_TYPES):
            if kind in row and not isinstance(row[kind], float):
                print(f"    {kind}: {row[kind]}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(any(not isinstance(row.get(kind), float) for row in rows.values() for kind in OUTPUT_TYPES))


if __name__ == "__main__":
    sys.exit(main())
