"""The report as one HTML file, as JSON, and as a value, which a notebook shows."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from dataclasses import dataclass, field
from importlib.resources import files

from fx_importer.diagnostics.explorer.contents import Contents


def json_text(contents: Contents) -> str:
    """Return ``contents`` as JSON without spaces."""
    return json.dumps(contents, separators=(",", ":"))


def html_page(contents: Contents | None) -> str:
    """Return a page that shows ``contents``, and loads nothing. Without contents, it shows those that its parent posts.

    The page's policy allows its own script, by its hash, the style sheets of its code view, and no requests.
    """
    style, script = asset("explorer.css"), asset("explorer.js")
    embedded = "" if contents is None else embedded_json(contents)
    nonce = hashlib.sha256(embedded.encode()).hexdigest()[:32]
    policy = f"default-src 'none'; script-src {hash_source(script)}; style-src 'nonce-{nonce}'"
    title = html.escape(f"{contents['title']}: {contents['output_type']}" if contents else "Explorer")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>",
            f'<style nonce="{nonce}">{style}</style>',
            asset("explorer.html"),
            f'<script type="application/json" id="contents">{embedded}</script>',
            f'<script type="module">{script}</script>',
            "</html>\n",
        ]
    )


def embedded_json(value: object) -> str:
    """Return JSON that neither ends the script element around it nor begins a comment."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def hash_source(text: str) -> str:
    """Return the source expression of a script in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def asset(name: str) -> str:
    """Return the text of a built file."""
    return files(__package__ or __name__).joinpath("assets").joinpath(name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Report:
    """The IR of a model, stage by stage; a notebook shows it in the explorer."""

    contents: Contents = field(repr=False)
    """What the page shows, as JSON values (docs/explorer.schema.json)."""

    def __repr__(self) -> str:
        of = self.contents
        return f"<Report {of['output_type']}: {of['title']}, {of['outcome']}, {len(of['stages'])} stages>"

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, which can do nothing to the notebook; its lower edge can be drawn."""
        style = "width: 100%; height: 640px; border: 1px solid #8888; resize: vertical; overflow: auto"
        page = html.escape(html_page(self.contents))
        return f'<iframe title="Explorer" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'
