"""The playground in headless Chromium: the explorer follows edits."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fx_importer.cli.playground.server import Playground
from fx_importer.options import Limits
from fx_importer.output_types import OutputType
from testing.screenshots import WIDTHS
from tests.diagnostics.explorer.browsers import AXE, CHROMIUM, NEEDS_CHROMIUM, SCREENSHOTS, serious_problems, started

pytestmark = NEEDS_CHROMIUM


def test_edit(monkeypatch: pytest.MonkeyPatch):
    assert CHROMIUM
    with started() as browser, Playground(0, OutputType.TOSA, Limits(300, 4 << 30)) as playground:
        threading.Thread(target=playground.serve_forever, daemon=True).start()
        page: Any = browser.new_page(viewport={"width": 1600, "height": 900})
        page.set_default_timeout(120_000)
        requests: list[str] = []
        problems: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(playground.address)
        explorer = page.frame_locator("#page")
        explorer.locator("#pane-last .cm-line", has_text="tosa.matmul").first.wait_for()

        # The editor and the result are linked in both directions.
        page.locator("#editor .cm-line", has_text="self.hidden(x)").click()
        explorer.locator("#pane-last .cm-line.linked", has_text="tosa.matmul").first.wait_for()
        explorer.locator("#pane-last .cm-line", has_text="tosa.exp").click()
        page.locator("#editor .cm-line.linked", has_text="torch.softmax").wait_for()
        assert not explorer.locator("#pane-source").is_visible()
        if AXE.exists():
            assert not serious_problems(page)

        page.locator("#editor .cm-content").click()
        page.keyboard.press("Control+Home")
        page.keyboard.insert_text("oops oops\n")
        page.locator("#message:visible").wait_for()
        assert "SyntaxError" in page.locator("#message").text_content()
        assert page.locator("#editor .cm-line.wrong").inner_text() == "oops oops"
        assert page.locator("#result.stale").count() == 1
        page.keyboard.press("Control+z")
        page.locator("#result:not(.stale)").wait_for()

        # A link holds the program.
        page.keyboard.insert_text("# mine\n")
        page.click("#link")
        page.wait_for_function("location.hash.startsWith('#tosa/')")
        other: Any = browser.new_page()
        other.goto(page.url)
        other.locator("#editor .cm-line", has_text="# mine").wait_for()
        other.close()
        page.select_option("#output-type", "stablehlo")
        page.locator("#message").wait_for(state="hidden")
        explorer.locator("#pane-last .cm-line", has_text="stablehlo.dot").first.wait_for()
        assert page.locator("#message").is_hidden()
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        for width, height in WIDTHS.items():
            page.set_viewport_size({"width": width, "height": height})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.screenshot(path=SCREENSHOTS / f"playground-{width}-{scheme}.png")
        assert all(each.startswith(playground.address) for each in requests)
        assert problems == []
        playground.shutdown()
