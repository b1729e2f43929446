"""A `Lowered` as text of one line and of one screen, and as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_importer.diagnostics.html import folded, preformatted
from fx_importer.errors import printable
from fx_importer.mlir.module_summary import ModuleSummary, readable_bytes, summary_of

if TYPE_CHECKING:
    from fx_importer.results.lowered import Lowered

WIDTH = 120
_LISTED = 8


def line_of(lowered: Lowered) -> str:
    """Return the output type, the functions, and the sizes: ``<Lowered tosa: main, 12 operations, 1.2 MB in 4 …>``."""
    summary = summary_of(lowered.module.operation, lowered.manifest)
    return f"<Lowered {_headline(summary)}>"


def summary_text(lowered: Lowered) -> str:
    """Return functions, operations, constants and stages of ``lowered``, each cut to a few lines."""
    summary = summary_of(lowered.module.operation, lowered.manifest)
    lines = [_headline(summary), *text_lines(summary)]
    if lowered.trace.stages:
        lines.append(_row("stages", lowered.trace.summary()))
    if stubs := lowered.manifest.operator_stubs:
        lines.append(_row("stubs", _joined([f"{name} ({stub.operator})" for name, stub in stubs.items()])))
    return "\n".join(printable(line, newlines=True) for line in lines)


def text_lines(summary: ModuleSummary) -> list[str]:
    """Return lines about the functions, operations and constants of a module."""
    lines = [_row("function", f"{name}{described}") for name, described in list(summary.functions.items())[:_LISTED]]
    if len(summary.functions) > _LISTED:
        lines.append(_row("", f"... {len(summary.functions) - _LISTED} more functions"))
    counted = [f"{name} {count}" for name, count in summary.operations.items()]
    lines.append(_row("operations", _joined(counted)))
    sizes = [
        f"{constant.name or 'a literal'} {constant.type} {readable_bytes(constant.nbytes)}"
        for constant in summary.constants
    ]
    if sizes:
        lines.append(_row("constants", _joined(sizes, 4)))
    return lines


def html_of(lowered: Lowered) -> str:
    """Return the summary, under which the module opens, without its weights."""
    text = lowered.module.operation.get_asm(use_local_scope=True, large_elements_limit=16)
    return preformatted(summary_text(lowered)) + folded(f"{lowered.manifest.output_type}, the module", text)


def _headline(summary: ModuleSummary) -> str:
    names = _joined(list(summary.functions), 3)
    outside = sum(constant.nbytes for constant in summary.constants if not constant.in_module)
    where = f", {readable_bytes(outside)} of them outside" if outside else ""
    constants = f"{readable_bytes(summary.nbytes)} in {len(summary.constants)} constants{where}"
    return f"{summary.output_type or 'a module'}: {names}, {summary.operation_count:,} operations, {constants}"


def _row(title: str, text: str) -> str:
    room = WIDTH * 3  # a signature of many inputs takes three lines at most
    return f"{title:<11} {text if len(text) <= room else text[: room - 4] + ' ...'}"


def _joined(parts: list[str], most: int = _LISTED) -> str:
    return ", ".join(parts[:most]) + (f", ... {len(parts) - most} more" if len(parts) > most else "")
