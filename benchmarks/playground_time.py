"""Seconds from an edit of an MLP in the playground to the result on the page, in headless Chromium.

    python -m benchmarks.playground_time [--edits 10]

The process of compilations has imported PyTorch and has compiled the program before. Each edit replaces the batch size,
one digit. Its time ends when the new explorer shows TOSA with that size, and includes the 0.15 s that the page
waits for further keys. The shortest counts: other processes only make edits longer.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from testing.screenshots import served
from tests.diagnostics.explorer.browsers import started


def edit_times(page: Any, edits: int) -> list[float]:
    """Return the seconds of each edit on ``page``, which shows the result of the program."""
    page.locator("#editor .cm-line", has_text="torch.randn(8, 16)").click()
    page.keyboard.press("End")
    for _ in ", 16),)":
        page.keyboard.press("ArrowLeft")
    seconds: list[float] = []
    for edit in range(edits):
        size = 2 + edit % 8
        page.keyboard.press("Shift+ArrowLeft")
        start = time.perf_counter()
        page.keyboard.insert_text(str(size))
        while not _shows(page, f"%arg0: tensor<{size}x16xf32>"):
            time.sleep(0.01)  # a locator of Playwright would wait for up to half a second before it looks again
        seconds.append(time.perf_counter() - start)
    return seconds


def _shows(page: Any, text: str) -> bool:
    """Return whether the explorer has ``text`` in its last pane."""
    from playwright.sync_api import Error

    try:
        element = page.query_selector("#page")
        frame = element and element.content_frame()
        pane = frame and frame.query_selector("#pane-last")
        return bool(pane) and text in (pane.text_content() or "")
    except Error:  # the explorer before this one, which the page removes
        return False


def main() -> None:
    """Measure, and print the shortest and the median."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--edits", type=int, default=10)
    args = parser.parse_args()
    with started() as browser, served() as address:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(120_000)
        page.goto(address)
        page.frame_locator("#page").locator("#pane-last .cm-line", has_text="tosa.matmul").first.wait_for()
        seconds = edit_times(page, args.edits)
    print(
        f"edit to result, {len(seconds)} edits: least {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s"
    )


if __name__ == "__main__":
    main()
