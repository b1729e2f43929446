"""The report as a Markdown page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from fx_importer.diagnostics.trace import IMPORTED_FUNCTION, LOCAL_FUNCTION


def page(facts: Mapping[str, Any]) -> str:
    """Return the text of ``report.md`` for the data of ``report.json``."""
    sections = [
        [f"# The stage `{facts['stage']}` failed", "", *_fenced(facts["error"])],
        _causes(facts["causes"]) if facts["causes"] else [],
        _table(("stage", "outcome", "seconds"), map(_stage_row, facts["stages"])),
        _reproduce(facts),
        _crash(facts["crash"]) if facts["crash"] else [],
        ["## Traceback", "", *_fenced(facts["traceback"])] if facts["traceback"] else [],
        _table(("", "version"), facts["versions"].items()),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _causes(causes: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = [
        (
            _code(cause["call"]),
            _places(cause["places"]),
            *map(_plain, (cause["reason"], "; ".join(cause["suggestions"]))),
        )
        for cause in causes
    ]
    return ["## Unsupported operators", "", *_table(("operator", "source", "reason", "suggestions"), rows)]


def _places(places: Iterable[Mapping[str, Any]]) -> str:
    """Return each source line once, with its text and number of calls."""
    counts = Counter((place["file"], place["line"], place["source"]) for place in places)
    messages = [
        (f"{file}:{line}" if file else "an unknown line")
        + (f", {_code(source)}" if source else "")
        + (f", {count} times" if count > 1 else "")
        for (file, line, source), count in counts.items()
    ]
    return "<br>".join(messages)


def _code(text: str) -> str:
    return f"`{_plain(text)}`"


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _stage_row(stage: Mapping[str, Any]) -> tuple[str, str, str]:
    outcome = f"**{stage['outcome']}**" if stage["outcome"] == "failed" else stage["outcome"]
    return stage["name"], outcome, "" if stage["seconds"] is None else f"{stage['seconds']:.3f}"


def _reproduce(facts: Mapping[str, Any]) -> list[str]:
    lines = ["## Reproducing", ""]
    if facts["command"]:
        lines += [
            "`fx-importer reproduce .` in this directory runs it and reports whether it fails in the same way.",
            "`./command.sh` runs:",
            "",
            *_fenced(facts["command"], "sh"),
            "",
        ]
    elif LOCAL_FUNCTION in facts["pipeline"]:
        lines += [f"There is no reproducer: `{facts['pipeline']}` calls a Python function that cannot be imported.", ""]
    else:
        lines += ["There is no reproducer: the failure came before the export.", ""]
    if IMPORTED_FUNCTION in facts["pipeline"]:
        lines += ["It calls a Python function, which must be importable (`PYTHONPATH`), and runs with `--trust`.", ""]
    lines += [f"- {sentence}" for sentence in facts["files"].values()]
    if facts["not_recorded"]:
        options = " and ".join(f"`{name}`" for name in facts["not_recorded"])
        lines.append(f"- The call had {options} with Python functions, which are not recorded.")
    return [*lines, "- `report.json` has the data of this page."]


def _crash(crash: Mapping[str, Any]) -> list[str]:
    return ["## Last output of the process", "", *_fenced(crash["output"].rstrip() or "(nothing)")]


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    heads = list(heads)
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, *rows)]
    return [lines[0], "|" + "---|" * len(heads), *lines[1:]]


def _fenced(text: str, language: str = "text") -> list[str]:
    return [f"```{language}", text, "```"]
