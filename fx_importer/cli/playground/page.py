"""The page of the playground."""

from __future__ import annotations

import secrets

from fx_importer.diagnostics.explorer.page import asset, embedded_json, hash_source
from fx_importer.output_types import OutputType


def playground_page(output_type: OutputType) -> tuple[str, str]:
    """Return the page, and its content security policy: it asks only this server."""
    style, script, nonce = asset("playground.css"), asset("playground.js"), secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; script-src {hash_source(script)}; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    settings = {
        "output_types": [output_type.value for output_type in OutputType],
        "output_type": output_type.value,
    }
    page = "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<title>fx-importer playground</title>",
            f'<style nonce="{nonce}">{style}</style>',
            asset("playground.html"),
            f'<script type="application/json" id="settings">{embedded_json(settings)}</script>',
            f"<script>{script}</script>",
            "</html>\n",
        ]
    )
    return page, policy
