"""A transient progress line on the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import progress as bars
from rich.console import Console

if TYPE_CHECKING:
    from fx_importer.diagnostics.progress import Progress, ProgressCallback

_REFRESHES_PER_SECOND = 4


@contextmanager
def progress_line(*, auto_refresh: bool = True) -> Iterator[ProgressCallback | None]:
    """Show a progress line on standard error if that is a terminal or a notebook; yield its callback, or None.

    Other output goes above the line. With ``auto_refresh`` a thread redraws it; otherwise only updates do.
    """
    console = Console(stderr=True)
    if not (console.is_jupyter or _is_interactive(console)):
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
        auto_refresh=auto_refresh,
        refresh_per_second=_REFRESHES_PER_SECOND,
        # otherwise rich would send output meant for a file to standard error
        redirect_stdout=sys.stdout.isatty(),
    )
    stage = ""

    def callback(now: Progress) -> None:
        nonlocal stage
        if now.stage != stage:  # a new task, to restart the elapsed time
            for id_ in line.task_ids:
                line.remove_task(id_)
            line.add_task(now.stage, total=None, count="", remaining="")
            stage = now.stage
        (task,) = line.task_ids
        line.update(task, completed=now.done, total=now.total, count=_count(now), remaining=_remaining(now))
        if not auto_refresh:
            line.refresh()

    with line:
        yield callback


def _is_interactive(console: Console) -> bool:
    """Return whether standard error is a terminal that can redraw a line, outside of CI and without ``NO_COLOR``."""
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
