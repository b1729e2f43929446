"""Consoles of rich whose tables and text have names of files, with control characters escaped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from fx_importer.errors import printable


def escaped_console(**options: Any) -> Console:
    """Return a console of rich that escapes control characters of rendered values, and not its own."""
    made = Console(**options)
    made.push_render_hook(_Escaping())
    return made


class _Escaping(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Escaped(renderable) for renderable in renderables]


class _Escaped:
    """A renderable whose text is escaped."""

    def __init__(self, renderable: ConsoleRenderable):
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._segments(console.render(self._renderable, options))

    def _segments(self, segments: Iterable[Segment]) -> Iterable[Segment]:
        for segment in segments:
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
