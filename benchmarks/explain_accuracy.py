"""Compare `fx_importer.explain` with the outcome of lowering; docs/measurements/explain_accuracy.md.

    python -m benchmarks.explain_accuracy --json explain.json             # all; goes on where it stopped
    python -m benchmarks.explain_accuracy --models 'gpt2.*'
    python -m benchmarks.explain_accuracy --json explain.json --write     # renew the page from the file; run nothing

Half of the models have operators that some output type does not support, or dynamic sizes; the others are the zoo's.
A positive is a model and an output type that does not lower.
"""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from benchmarks.rows import DOCS, add_row, parser_of, read_rows, renew
from fx_importer import FxImporterError, explain, lower
from testing.zoo import ZOO

OUTPUT_TYPES = ("linalg-on-tensors", "tosa", "stablehlo")
PAGE = DOCS / "measurements" / "explain_accuracy.md"


class Tail(nn.Module):
    """A small network, followed by an unsupported operator."""

    def __init__(self, last: Callable[[torch.Tensor], Any]):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 8))
        self.last = last

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.layers(x))


def _weighted(x: torch.Tensor) -> torch.Tensor:
    return x[x.sum(-1) > 0].softmax(-1)


def _double(x: torch.Tensor) -> torch.Tensor:
    return (x.double() @ x.double().T).float()


def _in_a_branch(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: torch.poisson(x.abs()), lambda x: x.cos(), (x,))


def _in_a_loop(x: torch.Tensor) -> torch.Tensor:
    def step(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, torch.roll(x, 1, 0).tanh()

    return torch._higher_order_ops.while_loop(lambda i, x: i < 3, step, (torch.tensor(0), x))[1]  # type: ignore[attr-defined]


_TAILS: Mapping[str, Callable[[torch.Tensor], Any]] = {
    "nonzero": torch.nonzero,
    "boolean_mask": _weighted,
    "eigenvalues": torch.linalg.eigvals,
    "poisson": lambda x: torch.poisson(x.abs()),
    "unique": lambda x: torch.unique(x.round()),
    "float64": _double,
    "ldl": lambda x: torch.linalg.ldl_factor(x + x.T)[0],
    "histogramdd": lambda x: torch.histogramdd(x[:, :2].contiguous(), bins=[3, 3])[0],
    "rounded": lambda x: x.round().long().clamp(0, 3),
    "spectrum": lambda x: torch.fft.rfft(x).abs(),
    "sorted": lambda x: torch.sort(x, -1)[0],
    "in_a_branch": _in_a_branch,
    "in_a_loop": _in_a_loop,
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "item": lambda x: x.argmax().item(),
    "max_unpool": lambda x: nn.functional.max_unpool2d(
        *nn.functional.max_pool2d(x[None], 2, return_indices=True), [2, 2]
    ),
}


def models() -> dict[str, Callable[[], ExportedProgram]]:
    """Return a function that makes the program, for each model by name."""
    found: dict[str, Callable[[], ExportedProgram]] = {}
    for name, last in _TAILS.items():
        found[f"tail_{name}"] = partial(_tail, last, None)
        found[f"tail_{name}_dynamic"] = partial(_tail, last, ({0: Dim("batch", min=3, max=64)},))
    for name, model in ZOO.items():
        if model.small and name != "mamba_small":
            found[name] = partial(_zoo, name, False)
            if model.dynamic_shapes is not None:
                found[f"{name}_dynamic"] = partial(_zoo, name, True)
    return found


def _tail(last: Callable[[torch.Tensor], Any], dynamic_shapes: Any) -> ExportedProgram:
    torch.manual_seed(0)
    return torch.export.export(Tail(last).eval(), (torch.randn(8, 8),), dynamic_shapes=dynamic_shapes)


def _zoo(name: str, dynamic: bool) -> ExportedProgram:
    torch.manual_seed(0)
    model, args, kwargs = ZOO[name].build()
    shapes = ZOO[name].dynamic_shapes if dynamic else None
    return torch.export.export(model, args, kwargs, dynamic_shapes=shapes)


def measure(name: str, build: Callable[[], ExportedProgram]) -> Iterator[dict[str, Any]]:
    """Yield a row for each output type: what was foreseen, and the outcome."""
    try:
        program = build()
    except Exception as error:
        yield {"model": name, "output_type": "", "export": str(error).split("\n")[0]}
        return
    for output_type in OUTPUT_TYPES:
        start = time.process_time()
        foreseen = explain(program, output_types=[output_type], mutation="functional")
        seconds = time.process_time() - start
        try:
            lower(program, output_type=output_type, mutation="functional")
            failed = ""
        except FxImporterError as error:
            failed = str(error)
        yield {
            "model": name,
            "output_type": output_type,
            "foreseen": "" if foreseen else str(foreseen),
            "failed": failed,
            "seconds": round(seconds, 2),
        }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return precision and recall by output type, as a table in Markdown, and the wrong ones by name."""
    lines = ["| output type | programs | do not lower | foreseen | precision | recall |", "|---|---|---|---|---|---|"]
    for output_type in (*OUTPUT_TYPES, "all"):
        here = [row for row in rows if "failed" in row and output_type in (row["output_type"], "all")]
        failed, foreseen = (
            {row["model"] + row["output_type"] for row in here if row[key]} for key in ("failed", "foreseen")
        )
        both = len(failed & foreseen)
        ratios = [f"{both / len(of):.3f}" if of else "-" for of in (foreseen, failed)]
        lines.append(f"| {output_type} | {len(here)} | {len(failed)} | {len(foreseen)} | {' | '.join(ratios)} |")
    wrong = [row for row in rows if "failed" in row and bool(row["failed"]) != bool(row["foreseen"])]
    named = [f"{row['model']} to {row['output_type']} ({'not ' * (not row['foreseen'])}foreseen)" for row in wrong]
    return "\n".join([*lines, "", f"Wrong: {'; '.join(named) or 'none'}.", ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each row as it comes; the exit code is 1 if any was foreseen wrongly."""
    parser = parser_of(__doc__, PAGE)
    parser.add_argument("--models", default=".*", help="a regular expression of names")
    options = parser.parse_args(arguments)
    rows = read_rows(options.json)
    if not options.write:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        known = {row["model"] for row in rows}
        for name, build in models().items():
            if name in known or not re.fullmatch(options.models, name):
                continue
            for row in measure(name, build):
                rows.append(row)
                failed, foreseen = bool(row.get("failed")), bool(row.get("foreseen"))
                print(name, row["output_type"], f"{failed=} {foreseen=}", row.get("export", ""), flush=True)
                add_row(options.json, row)
    print(summary(rows))
    if options.write:
        renew(PAGE, "accuracy", summary(rows))
    return int(any("failed" in row and bool(row["failed"]) != bool(row["foreseen"]) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
