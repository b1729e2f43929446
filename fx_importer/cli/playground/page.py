"""The page of the playground."""

from __future__ import annotations

import secrets

from fx_importer.diagnostics.explorer.page import asset, embedded_json, hash_source
from fx_importer.output_types import OutputType

EXAMPLE = """\
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(6, 6)

    def forward(self, x):
        return torch.softmax(torch.relu(self.mix(x)), -1)


def build():
    return Model(), (torch.ones(4, 6),)
"""


def playground_page(output_type: OutputType) -> tuple[str, str]:
    """Return the page, and its content security policy: it asks only this server."""
    style, script, nonce = asset("playground.css"), asset("playground.js"), secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; script-src {hash_source(script)}; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    settings = {
        "source": EXAMPLE,
        "output_types": [output_type.value for output_type in OutputType],
        "output_type": output_type.value,
    }
    page = "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<meta charset="utf-8">',
            "<title>fx-importer playground</title>",
            f'<style nonce="{nonce}">{style}</style>',
            asset("playground.html"),
            f'<script type="application/json" id="settings">{embedded_json(settings)}</script>',
            f"<script>{script}</script>",
            "</html>\n",
        ]
    )
    return page, policy
