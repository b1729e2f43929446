"""A report as a page to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from fx_importer.diagnostics.trace import HERE, IMPORTED


def page(facts: Mapping[str, Any]) -> str:
    """Return ``report.md`` of what ``report.json`` holds."""
    sections = [
        [f"# The stage `{facts['stage']}` failed", "", *_fenced(facts["error"])],
        _causes(facts["causes"]) if facts["causes"] else [],
        _table(("stage", "outcome", "seconds"), map(_rung, facts["stages"])),
        _again(facts),
        _crash(facts["crash"]) if facts["crash"] else [],
        ["## Where it was raised", "", *_fenced(facts["traceback"])] if facts["traceback"] else [],
        _table(("", "version"), facts["versions"].items()),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _causes(causes: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = [
        (_code(each["call"]), _places(each["places"]), *map(_plain, (each["reason"], "; ".join(each["suggestions"]))))
        for each in causes
    ]
    return ["## What was refused", "", *_table(("operator", "where", "reason", "what to try"), rows)]


def _places(places: Iterable[Mapping[str, Any]]) -> str:
    """Return each line of the model once, with its text and how often it calls."""
    counts = Counter((each["file"], each["line"], each["source"]) for each in places)
    said = [
        (f"{file}:{line}" if file else "an unknown line")
        + (f", {_code(source)}" if source else "")
        + (f", {count} times" if count > 1 else "")
        for (file, line, source), count in counts.items()
    ]
    return "<br>".join(said)


def _code(text: str) -> str:
    return f"`{_plain(text)}`"


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _rung(stage: Mapping[str, Any]) -> tuple[str, str, str]:
    outcome = f"**{stage['outcome']}**" if stage["outcome"] == "failed" else stage["outcome"]
    return stage["name"], outcome, "" if stage["seconds"] is None else f"{stage['seconds']:.3f}"


def _again(facts: Mapping[str, Any]) -> list[str]:
    lines = ["## To see it again", ""]
    if facts["command"]:
        lines += [
            "`fx-importer reproduce .` in this directory runs it, and says whether it still fails in the same way.",
            "`./command.sh` runs:",
            "",
            *_fenced(facts["command"], "sh"),
            "",
        ]
    elif HERE in facts["pipeline"]:
        lines += [f"Nothing here runs: `{facts['pipeline']}` calls a Python function that no module has.", ""]
    else:
        lines += ["Nothing here runs: it failed before there was a program to keep.", ""]
    if IMPORTED in facts["pipeline"]:
        lines += ["It calls a Python function: run it where that can be imported (`PYTHONPATH`).", ""]
    lines += [f"- {sentence}" for sentence in facts["files"].values()]
    if facts["unsaid"]:
        given = " and ".join(f"`{name}`" for name in facts["unsaid"])
        lines.append(f"- The call had {given} of Python functions, which no file here holds.")
    return [*lines, "- `report.json` is this page as data."]


def _crash(crash: Mapping[str, Any]) -> list[str]:
    return ["## What the process said last", "", *_fenced(crash["said"].rstrip() or "(nothing)")]


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    heads = list(heads)
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, *rows)]
    return [lines[0], "|" + "---|" * len(heads), *lines[1:]]


def _fenced(text: str, language: str = "text") -> list[str]:
    return [f"```{language}", text, "```"]
