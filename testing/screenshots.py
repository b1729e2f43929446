"""Pictures of the explorer and the playground in headless Chromium, for the documentation site."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fx_importer.cli.playground.server import Playground
from fx_importer.options import Limits
from fx_importer.output_types import OutputType
from tests.diagnostics.explorer.browsers import started

WIDTHS = {1440: 900, 1024: 768, 390: 844}
"""Heights of the windows by width: a desk, a tablet and a phone."""


@contextmanager
def served() -> Iterator[str]:
    """Serve a playground for TOSA, and return its address."""
    with Playground(0, OutputType.TOSA, Limits(300, 4 << 30)) as playground:
        threading.Thread(target=playground.serve_forever, daemon=True).start()
        try:
            yield playground.address
        finally:
            playground.shutdown()


def take_pictures(sample: Path, folder: Path) -> list[Path]:
    """Write the first views of the explorer page ``sample`` and of the playground, by width and in light and dark.

    Returns:
        the files, in ``folder``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with started() as browser, served() as address:
        return [
            take_picture(browser, name, url, width, scheme, folder)
            for name, url in (("explorer", sample.as_uri()), ("playground", address))
            for width in WIDTHS
            for scheme in ("light", "dark")
        ]


def take_picture(browser: Any, name: str, url: str, width: int, scheme: str, folder: Path) -> Path:
    """Open ``url``, and write what a window of ``width`` pixels shows when the result is there."""
    path = folder / f"{name}-{width}-{scheme}.png"
    page = browser.new_page(viewport={"width": width, "height": WIDTHS[width]}, color_scheme=scheme)
    page.set_default_timeout(120_000)
    page.goto(url)
    explorer = page.frame_locator("#page") if name == "playground" else page
    explorer.locator("#pane-last .cm-line", has_text="tosa.").first.wait_for()
    explorer.locator("body").evaluate(
        "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    page.screenshot(path=path, animations="disabled")
    page.close()
    return path
