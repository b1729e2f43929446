"""Check special values in every output type: results equal eager's, or differ as `edge_deviations` says.

python -m testing.edge_matrix --output-type linalg-on-tensors --backend jit [--only NAME,...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fx_importer import FxImporterError, OutputType, lower
from testing.edges import ROWS, Row


class Batch(torch.nn.Module):
    """Rows as one model: it takes the inputs of each, and returns the results of each, flat."""

    def __init__(self, rows: Sequence[Row]):
        super().__init__()
        self.rows = rows

    def forward(self, inputs: list[list[Tensor]]) -> list[list[Tensor]]:
        return [tree_leaves(row.compute(*given)) for row, given in zip(self.rows, inputs, strict=True)]


def verdicts(rows: Sequence[Row], output_type: OutputType, backend: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield each row's name and its difference, if any: all rows in one program, split in two if that fails."""
    inputs = [list(row.inputs) for row in rows]
    try:
        lowered = lower(Batch(rows), inputs, output_type=output_type)
        results = lowered.caller(backend=backend)(inputs)
    except FxImporterError as error:
        if len(rows) == 1:
            yield rows[0].name, "unsupported: " + " ".join(str(error).split())[:300]
            return
        middle = len(rows) // 2
        yield from verdicts(rows[:middle], output_type, backend)
        yield from verdicts(rows[middle:], output_type, backend)
        return
    for row, ours in zip(rows, results, strict=True):
        yield row.name, difference(row, ours)


def difference(row: Row, ours: Sequence[Any]) -> str:
    """Return where and how ``ours`` differs from eager; an empty string if it does not."""
    eager = tree_leaves(row.compute(*row.inputs))
    parts = [
        f"result {i}: {text}"
        for i, (a, e) in enumerate(zip(ours, eager, strict=True))
        if (text := _describe(row, a, e))
    ]
    return "; ".join(parts)


def _describe(row: Row, ours: Tensor, eager: Tensor) -> str:
    if ours.dtype != eager.dtype or ours.shape != eager.shape:
        return f"{ours.dtype} {list(ours.shape)} is not {eager.dtype} {list(eager.shape)}"
    if not eager.is_floating_point():
        wrong = ours != eager
    else:
        relative, absolute = row.tolerance
        a, e = ours.double(), eager.double()
        near = (a - e).abs() <= absolute + relative * e.abs()
        same = torch.where(e.isfinite(), near & a.isfinite(), (a == e) | (a.isnan() & e.isnan()))
        if row.zeros:
            same &= ~((e == 0) & (a == 0) & (a.signbit() != e.signbit()))
        wrong = ~same
    places = wrong.reshape(-1).nonzero().flatten().tolist()
    given = [x.reshape(-1) for x in row.inputs if x.numel() == eager.numel()]
    shown = [
        f"({', '.join(f'{x[i].item():.9g}' for x in given)}) -> "
        f"{ours.reshape(-1)[i].item():.8g} not {eager.reshape(-1)[i].item():.8g}"
        for i in places[:6]
    ]
    return f"{len(places)} of {eager.numel()}: " + ", ".join(shown) if places else ""


def isolated(rows: Sequence[Row], output_type: str, backend: str | None) -> dict[str, str]:
    """Return the verdicts of ``rows`` from a process of their own; if it crashes, from one for each half."""
    command = [sys.executable, "-W", "ignore", "-m", "testing.edge_matrix", "--here", "--output-type", output_type]
    command += ["--only", ",".join(row.name for row in rows), *(["--backend", backend] if backend else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    if len(rows) == 1:
        return {rows[0].name: f"unsupported: the process ended with {done.returncode} {done.stderr[-300:]}"}
    middle = len(rows) // 2
    return isolated(rows[:middle], output_type, backend) | isolated(rows[middle:], output_type, backend)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-type", default="linalg-on-tensors")
    parser.add_argument("--backend")
    parser.add_argument("--only")
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    only = arguments.only.split(",") if arguments.only else None
    rows = [row for row in ROWS if not only or row.name in only]
    if arguments.here:
        print(json.dumps(dict(verdicts(rows, OutputType.get(arguments.output_type), arguments.backend))))
        return
    found: dict[str, str] = {}
    for start in range(0, len(rows), 64):
        found |= isolated(rows[start : start + 64], arguments.output_type, arguments.backend)
    for name, verdict in found.items():
        if verdict:
            print(f"{name}: {verdict}", flush=True)
    print(f"{len(found)} rows, {sum(map(bool, found.values()))} wrong")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
