"""``fx-importer decompositions``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text
from torch._ops import OpOverload

from fx_importer.cli.commands.import_model import export_model
from fx_importer.cli.escaped_console import escaped_console
from fx_importer.cli.json_output import json_output
from fx_importer.cli.terminal import echo
from fx_importer.decompositions import Overrides, decompose
from fx_importer.decompositions.engine.op_diff import OpDiff, diff_operators
from fx_importer.decompositions.engine.table import TableLine
from fx_importer.lowerings import layers
from fx_importer.options import Options
from fx_importer.targets import target_for
from fx_importer.verification.verdict import as_text

Lines = Mapping[OpOverload, TableLine]

WHOLE = 500
"""Width in characters; lines are not truncated or wrapped."""


def show_decompositions(model: str | None, options: Options, json_file: Path | None, trust: bool = False) -> None:
    """Print the decomposition table of the output type; for ``model``, its operators before and after decomposition.

    Raises:
        UsageError: if ``model`` does not name a model, an operator to keep does not exist, or a file cannot be written.
        ExportError: if torch.export cannot capture the model.
    """
    with json_output(json_file) as write:
        write(json.dumps(_shown_decompositions(model, options, trust), indent=1))


def _shown_decompositions(model: str | None, options: Options, trust: bool) -> dict[str, Any]:
    """Print what `show_decompositions` prints, and return it as data."""
    Overrides.of(options.decompositions.keep, options.decompositions.extra)  # raises before the export
    target, rules = target_for(options.output_type), layers(options.lowering.lowerings)
    difference = None
    if model is None:
        lines = target.table(options, rules).lines
        _print(_table(lines), _summary(lines))
    else:
        program = export_model(model, options, trust)
        table = target.table(options, rules, program)
        lines, difference = table.lines, diff_operators(program, decompose(program, table))
        _print(_comparison(difference, lines), str(difference))
    data: dict[str, Any] = {"output_type": options.output_type.value, "table": list(_rows(lines))}
    if difference is not None:
        data |= {"before": difference.before, "after": difference.after}
    return data


def _rows(lines: Lines) -> Iterator[dict[str, str | None]]:
    for operator, line in sorted(lines.items(), key=lambda item: str(item[0])):
        yield {"operator": str(operator), "decomposed by": line.rule_name or None, "reason": line.reason}


def _table(lines: Lines) -> Table:
    table = _with_columns("operator", "", "reason")
    for row in _rows(lines):
        what = "decomposed" if row["decomposed by"] else "kept"
        cells = (row["operator"], what, row["reason"])
        table.add_row(*(Text(cell or "", "" if row["decomposed by"] else "bold") for cell in cells))
    return table


def _comparison(difference: OpDiff, lines: Lines) -> Table:
    """Return a table with a row per operator. The reason comes from its entry in ``lines``, if any."""
    reasons = {str(operator): line.reason for operator, line in lines.items()}
    table = _with_columns("operator", "before", "after", "reason")
    for name in difference.operators:
        counts = (str(difference.before.get(name, "-")), str(difference.after.get(name, "-")))
        style = "" if difference.changes(name) else "dim"
        table.add_row(*(Text(cell, style) for cell in (name, *counts, reasons.get(name, ""))))
    return table


def _with_columns(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(
            heading,
            no_wrap=heading != "reason",
            justify="right" if heading in ("before", "after") else "left",
        )
    return table


def _summary(lines: Lines) -> str:
    kept = sum(line.rule is None for line in lines.values())
    return f"{len(lines) - kept} operators are decomposed. {kept} are kept as it says here; any other is kept too."


def _print(table: Table, remark: str) -> None:
    console = escaped_console()
    if console.is_terminal:
        console.print(table)
        echo(remark)
    else:
        echo(as_text(table, [remark], width=WHOLE))
