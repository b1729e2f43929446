"""A line on the terminal that says how far the work has come, and is gone when it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console

from fx_importer.diagnostics.progress import Follow, Progress

_A_SECOND = 4
"""How often the line is drawn."""


@contextmanager
def shown(*, ticking: bool = True) -> Iterator[Follow | None]:
    """Show a line on standard error, if that is a terminal or a notebook; give what is to be told, or None.

    What is printed meanwhile goes above the line. ``ticking`` has a thread draw it; without one, the line changes only
    when there is something to tell.
    """
    console = Console(stderr=True)
    if not (console.is_jupyter or _is_watched(console)):
        yield None
        return
    line = bars.Progress(
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(bar_width=24),
        bars.TextColumn("{task.fields[count]}", markup=False),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.fields[remaining]}", markup=False),
        console=console,
        transient=True,
        auto_refresh=ticking,
        refresh_per_second=_A_SECOND,
        # rich would print to the console, standard error, what is meant for a file
        redirect_stdout=sys.stdout.isatty(),
    )
    stage = ""

    def tell(now: Progress) -> None:
        nonlocal stage
        if now.stage != stage:  # a new task, for the time that it takes
            for each in line.task_ids:
                line.remove_task(each)
            line.add_task(now.stage, total=None, count="", remaining="")
            stage = now.stage
        (task,) = line.task_ids
        line.update(task, completed=now.done, total=now.total, count=_count(now), remaining=_remaining(now))
        if not ticking:
            line.refresh()

    with line:
        yield tell


def _is_watched(console: Console) -> bool:
    """Whether people see standard error, and it can redraw a line: no pipe, no log of a CI, nothing that asks for plain
    text."""
    if not sys.stderr.isatty() or console.is_dumb_terminal:
        return False
    return not any(os.environ.get(name) for name in ("CI", "NO_COLOR"))


def _count(now: Progress) -> str:
    if not now.total:
        return ""
    return f"{now.done:,}/{now.total:,} {now.unit}  {100 * now.done // now.total}%"


def _remaining(now: Progress) -> str:
    if (seconds := now.remaining) is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"about {minutes}:{rest:02} left"
