"""A report as a value, which a notebook shows."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

from fx_importer.diagnostics.explorer.contents import Contents
from fx_importer.diagnostics.explorer.page import html_page


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
