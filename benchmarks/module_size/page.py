"""The page of the counts, docs/measurements/ir_size.md, and its chart."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path

from benchmarks.module_size.counts import Counts

ROOT = Path(__file__).parents[2]
STORED = Path(__file__).with_name("counts.json")
PAGE = ROOT / "docs/measurements/ir_size.md"
CHART = PAGE.with_name("ir_size.svg")
OUTPUT_TYPES = ("linalg-on-tensors", "tosa", "stablehlo")
OURS, PEER, JAX = "fx_importer", "torch_mlir.fx", "jax"

Row = Mapping[str, Mapping[str, Counts]]
"""The counts of a program by output type and side."""
Table = Mapping[str, Row]
"""Rows by program."""
_HEAD = """# Size of modules

Written by `python -m benchmarks.ir_size`: operations of modules, from fx_importer, from `torch_mlir.fx` for the same
exported program, and from jax for the same function. A test counts ours in the small programs again, and fails if a
count grew.

- *operations*: all of them, constants and the bodies of structured operations among them; not functions, calls and
  terminators.
- *undecided*: operations that depend on no input, and are computed in each call. Constants are not counted, nor
  `tensor.empty`, `linalg.fill` and `linalg.index`, which linalg has for each result.
- *casts*; *moves*: transposes and reshapes; *KiB*: different constants, weights among them.

A cell has our count / `torch_mlir.fx`, and for StableHLO / jax. `-`: the side raises an error, or jax has
no function of this program. At the end are the [operations that no input decides](#operations-that-no-input-decides)
and the [programs with more operations](#programs-with-more-operations), with reasons.

![Operations relative to torch_mlir.fx](ir_size.svg)
"""

UNDECIDED: Mapping[str, Mapping[str, str]] = {
    "linalg-on-tensors": {
        "linalg.broadcast": "the bias that a convolution adds to: a folded one has the size of the result",
        "linalg.generic": "positions, which compilers compute in the loop that reads them; flipped weights of "
        "transposed convolutions, which would be copied; a weight repeated for each row of the batch",
        "tensor.collapse_shape": "views of weights and positions, without computation",
        "tensor.expand_shape": "views of weights and positions, without computation",
        "tensor.extract_slice": "views of positions, without computation",
        "tensor.concat": "positions",
    },
    "tosa": {
        "tosa.identity": "zeros: MLIR's folder adds them wrongly to -0.0",
        "tosa.tile": "weights that are repeated: the result would be larger",
        "tosa.slice": "parts of a weight, which share its memory",
        "tosa.cast": "positions in 64 bits that are compared with an input of 64 bits",
    },
    "stablehlo": {
        "stablehlo.broadcast_in_dim": "weights, biases and masks: the result would be larger",
        "stablehlo.iota": "positions, larger than 4 KiB or fused by compilers",
        "stablehlo.reshape": "of positions",
        "stablehlo.concatenate": "of positions",
        "stablehlo.transpose": "weights of transposed convolutions, which would be copied",
        "stablehlo.reverse": "weights of transposed convolutions, which would be copied",
    },
}
"""Operations that no input decides, which stay, by output type and name, with the reason."""
LARGER: Mapping[tuple[str, str, str], str] = {
    ("argmax", "linalg-on-tensors", PEER): "NaN is the largest, and the first one wins, as in eager",
    ("argmax", "stablehlo", PEER): "NaN is the largest, and the first one wins, as in eager",
    ("argmax", "stablehlo", JAX): "the first of two NaNs wins in any order of the reduction; the result is converted",
    ("cumsum", "linalg-on-tensors", PEER): "a loop of upstream dialects; torch_mlir.fx leaves `tm_tensor.scan`",
    ("gelu", "stablehlo", JAX): "StableHLO has no erf; jax leaves `chlo.erf`",
    ("linear_bf16", "stablehlo", JAX): "the sum is in float32, whatever the compiler, and rounded once",
    ("einsum_i_j_ij", "stablehlo", JAX): "a product keeps -0.0; a `dot_general` adds it to 0.0",
    ("mamba_small", "tosa", PEER): "`log1p` of softplus is exact near zero, and at infinities",
}
"""Reasons for cells with more operations than another side, by program, output type and side."""


def read() -> dict[str, dict[str, dict[str, dict[str, Counts]]]]:
    """Return the stored counts: tables by name, ``programs`` and ``models``."""
    if not STORED.exists():
        return {"programs": {}, "models": {}}
    return {
        table: {
            name: {kind: {side: Counts(*each) for side, each in sides.items()} for kind, sides in row.items()}
            for name, row in rows.items()
        }
        for table, rows in json.loads(STORED.read_text(encoding="utf-8")).items()
    }


def write(tables: Mapping[str, Table]) -> None:
    """Store the counts, and write the page."""
    plain = {
        table: {
            name: {kind: {side: astuple(each) for side, each in sides.items()} for kind, sides in row.items()}
            for name, row in rows.items()
        }
        for table, rows in tables.items()
    }
    lines = ",\n".join(
        f'  "{table}": {{\n' + ",\n".join(f'    "{name}": {json.dumps(row)}' for name, row in rows.items()) + "\n  }"
        for table, rows in plain.items()
    )
    STORED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    PAGE.write_text(text_of(tables), encoding="utf-8")


def text_of(tables: Mapping[str, Table]) -> str:
    """Return the page."""
    text = _HEAD
    for kind in OUTPUT_TYPES:
        text += f"\n## {kind}\n\n{_summary(tables, kind)}\n"
        for rows in tables.values():
            text += "\n| | operations | undecided | casts | moves | KiB |\n|---|---|---|---|---|---|\n"
            text += "".join(_line(name, row[kind], kind) for name, row in rows.items())
    text += "\n## Operations that no input decides\n\n"
    text += "".join(f"- `{name}`: {reason}.\n" for names in UNDECIDED.values() for name, reason in names.items())
    text += "\n## Programs with more operations\n\n"
    return text + "".join(
        f"- {name}, {kind}, than {side}: {reason}.\n" for (name, kind, side), reason in LARGER.items()
    )


def larger(tables: Mapping[str, Table]) -> set[tuple[str, str, str]]:
    """Return the cells with more operations than another side: program, output type and side."""
    return {
        (name, kind, side)
        for rows in tables.values()
        for name, row in rows.items()
        for kind, sides in row.items()
        for side, counts in sides.items()
        if sides[OURS].operations > counts.operations
    }


def _line(name: str, sides: Mapping[str, Counts], kind: str) -> str:
    shown = (OURS, PEER, JAX) if kind == "stablehlo" else (OURS, PEER)
    columns = [[_shown(sides.get(side), column) for side in shown] for column in range(5)]
    return f"| {name} | {' | '.join(' / '.join(cells) for cells in columns)} |\n"


def _shown(counts: Counts | None, column: int) -> str:
    if counts is None:
        return "-"
    value = astuple(counts)[column]
    return f"{value / 1024:.1f}" if column == 4 else str(value)


def _summary(tables: Mapping[str, Table], kind: str) -> str:
    sentences: list[str] = []
    for side in (PEER, JAX):
        pairs = [
            (row[kind][OURS].operations, row[kind][side].operations)
            for rows in tables.values()
            for row in rows.values()
            if OURS in row[kind] and side in row[kind]
        ]
        if pairs:
            fewer, more = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
            mean = math.exp(sum(math.log(max(a, 1) / max(b, 1)) for a, b in pairs) / len(pairs))
            sentences.append(
                f"{fewer} of {len(pairs)} programs have fewer operations than from {side}, {more} have more; "
                f"geometric mean of the ratios {mean:.2f}."
            )
    return "\n".join(sentences)


def draw(models: Table) -> None:
    """Draw the operations of the models relative to the peer's."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "fx_importer", "svg.fonttype": "none", "font.size": 8})
    from matplotlib import pyplot as plt

    names = list(models)[::-1]
    figure, axes = plt.subplots(1, len(OUTPUT_TYPES), figsize=(10, 0.25 * len(names) + 1), sharey=True)
    for axis, kind in zip(axes, OUTPUT_TYPES, strict=True):
        sides = [models[name][kind] for name in names]
        ratios = [each[OURS].operations / each[PEER].operations if PEER in each else 0 for each in sides]
        axis.barh(names, ratios, color="#4c72b0")
        axis.axvline(1, color="#c44e52")
        axis.grid(axis="x", alpha=0.3)
        axis.tick_params(left=False)
        axis.set(title=kind, xlabel="operations relative to torch_mlir.fx")
    figure.tight_layout()
    figure.savefig(CHART, metadata={"Date": None})
    plt.close(figure)
