"""HTML of results in notebooks: preformatted text, and long text folded."""

from __future__ import annotations

import html

LIMIT = 400_000
"""Characters of a text that a notebook holds; the rest is left out."""


def preformatted(text: str) -> str:
    """Return ``text`` as it is, in a fixed width, and not wrapped."""
    return f'<pre style="white-space: pre; overflow-x: auto">{html.escape(text)}</pre>'


def folded(title: str, text: str) -> str:
    """Return ``title``, under which ``text`` opens."""
    rest = f"\n... and {len(text) - LIMIT:,} characters more" if len(text) > LIMIT else ""
    return f"<details><summary>{html.escape(title)}</summary>{preformatted(text[:LIMIT] + rest)}</details>"
