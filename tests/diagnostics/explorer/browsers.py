"""Headless Chromium for tests, and axe-core."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SCREENSHOTS = ROOT / "out" / "explorer"
"""Where tests leave pictures of pages."""

AXE = ROOT / "explorer" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None,
    reason="needs playwright, of the extra 'test', and chromium: apt-get install chromium, as .ci/run does",
)
_SWITCHES = [  # without connections of Chromium's own
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@contextmanager
def started() -> Iterator[Any]:
    """Start a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_SWITCHES)
        yield browser
        browser.close()


COLORS = ["color-contrast", "link-in-text-block"]
"""The rules of axe-core that depend on colors."""


def serious_problems(page: Any) -> list[tuple[str, str, str]]:
    """Return what axe-core finds serious or critical on what is in sight, in light colors and in dark ones.

    Returns:
        rule, element, and what to mend.
    """
    page.evaluate(AXE.read_text())
    found: list[Any] = []
    for scheme, options in (("dark", {"runOnly": COLORS}), ("light", {})):
        page.emulate_media(color_scheme=scheme)
        found += page.evaluate("options => axe.run(document, options)", {"iframes": False, **options})["violations"]
    return [
        (each["id"], node["html"][:200], node["failureSummary"])
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"][:3]
    ]
