"""The explorer in headless Chromium: links, search, changes, graph, accessibility, and that nothing is requested."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fx_importer.diagnostics.explorer import Contents, Report, html_page
from tests.diagnostics.explorer import pages
from tests.diagnostics.explorer.browsers import AXE, NEEDS_CHROMIUM, SCREENSHOTS, serious_problems, started

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started() as launched:
        yield launched


class Opened:
    """A page that is open in the browser."""

    def __init__(self, page: Any, path: Path):
        self.page, self.name = page, path.stem
        self.requests: list[str] = []
        self.problems: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" else None)
        page.set_default_timeout(10_000)
        started = time.perf_counter()
        page.goto(path.as_uri())
        page.wait_for_selector("#tabs button")
        self.seconds = time.perf_counter() - started

    def line(self, pane: str, text: str) -> Any:
        return self.page.locator(f"#pane-{pane} .cm-line", has_text=text).first

    def click(self, pane: str, index: int, lines: list[str], text: str) -> None:
        """Scroll to the first of ``lines`` with ``text`` by the address, clear the links, and click the line."""
        row = next(number for number, line in enumerate(lines, 1) if text in line)
        self.page.evaluate(f"location.hash = '#{pane}/{index}/{row}'")
        self.page.wait_for_selector(f"#pane-{pane} .cm-line.chosen")
        self.page.keyboard.press("Escape")
        line, code = self.line(pane, text).bounding_box(), self.page.locator(f"#pane-{pane} .code").bounding_box()
        self.page.mouse.click(code["x"] + code["width"] / 2, line["y"] + line["height"] / 2)  # a line may be wider
        self.page.wait_for_selector(f"#pane-{pane} .cm-line.chosen")

    def linked(self, pane: str) -> list[str]:
        return self.page.locator(f"#pane-{pane} .cm-line.linked").all_text_contents()

    def chosen(self) -> list[str]:
        return self.page.locator(".cm-line.chosen").all_text_contents()

    def picture(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{self.name}-{name}.png")

    def check_accessible(self) -> None:
        """Assert that axe-core finds nothing serious on what is in sight, in light and dark."""
        if not AXE.exists():
            pytest.skip("needs axe-core: npm ci, in explorer/, as .ci/run does")
        assert not serious_problems(self.page)


Open = Callable[[str, Contents], Opened]


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    opened: list[Opened] = []

    def open_(name: str, contents: Contents) -> Opened:
        path = tmp_path / f"{name}.html"
        path.write_text(html_page(contents), encoding="utf-8")
        opened.append(Opened(browser.new_page(viewport={"width": 1600, "height": 1000}), path))
        return opened[-1]

    yield open_
    for each in opened:
        each.page.close()
        assert each.problems == []
        assert each.requests == [(tmp_path / f"{each.name}.html").as_uri()] * len(each.requests)


@pytest.mark.slow
def test_minilm(open_page: Open):
    contents = pages.minilm()
    assert len(html_page(contents).encode()) < 3e6
    opened = open_page("minilm", contents)
    page = opened.page
    assert page.locator(".pane:visible").count() == 2  # the source and TOSA
    facts = " ".join(page.locator("#facts").inner_text().split())
    assert "SentenceEncoder" in facts
    assert "89.5 MB" in facts
    page.get_by_role("button", name="Compare with another stage").click()
    page.locator("#pane-first select").select_option("0")

    # From a source line to the operations.
    query = "query_layer = self.query(hidden_states)"
    opened.click("source", 0, contents["files"][0]["lines"], query)
    assert query in opened.chosen()[0]
    assert any("aten.linear" in each for each in opened.linked("first"))
    assert any("tosa." in each for each in opened.linked("last"))
    assert "#source/0/" in page.url
    opened.picture("source-line")

    call = next(n for n, line in enumerate(contents["files"][0]["lines"]) if "attention_interface(" in line)
    opened.click("source", 0, contents["files"][0]["lines"][: call + 3], contents["files"][0]["lines"][call + 2])
    assert any("scaled_dot_product_attention" in each for each in opened.linked("first"))

    # And back.
    opened.click("first", 0, contents["views"][0]["lines"], "aten.gelu")
    assert "aten.gelu" in opened.chosen()[0]
    assert opened.linked("source")

    page.keyboard.press("/")
    page.keyboard.type("tosa.matmul")
    count = sum("tosa.matmul" in line for line in contents["views"][-1]["lines"])
    assert page.locator("#found").text_content() == f"{count} lines"
    page.keyboard.press("Enter")
    assert "tosa.matmul" in opened.chosen()[0]
    opened.picture("search")
    page.keyboard.press("Escape")
    assert opened.chosen() == []

    # The picture opens level by level.
    page.click("#tab-graph")
    for group in ("transformer", "encoder.layer", "0"):
        page.locator(".closed > .hit", has_text=f"▸ {group} ·").press("Enter")
    assert page.locator(".graph .group:not(.closed)").count() == 4
    assert page.locator(".closed > .hit", has_text="attention").count() == 1
    opened.picture("graph")
    page.locator(".operation > .hit").last.press("Enter")
    assert len(opened.chosen()) == 1

    page.click("#tab-stages")
    page.locator("button.changes").last.click()
    assert page.locator("#pane-last .cm-line.added").count()
    assert page.locator("#pane-last .cm-foldPlaceholder").count()
    opened.picture("changes")
    opened.check_accessible()


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_first_view(open_page: Open, width: int):
    """The views that the documentation shows, in light and dark; nothing is wider than the page."""
    opened = open_page(f"first-{width}", pages.verified())
    page = opened.page
    page.set_viewport_size({"width": width, "height": 900 if width > 400 else 844})
    assert page.locator(".pane:visible").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    facts = page.locator("#facts").inner_text()
    assert "linalg-on-tensors" in facts
    assert "equals PyTorch on jit" in facts or "mismatch on jit" in facts
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        opened.picture(scheme)
    opened.check_accessible()


def test_panes_graph_and_passes(open_page: Open):
    opened = open_page("panes", pages.verified())
    page = opened.page
    # The sizes of panes change by the keyboard and by dragging.
    width = page.locator("#pane-source").bounding_box()["width"]
    page.locator(".splitter:visible").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#pane-source").bounding_box()["width"] > width + 50
    bar = page.locator(".splitter:visible").bounding_box()
    page.mouse.move(bar["x"] + 3, bar["y"] + 200)
    page.mouse.down()
    page.mouse.move(500, bar["y"] + 200)
    page.mouse.up()
    assert abs(page.locator("#pane-source").bounding_box()["width"] - 500) < 20
    # Stages before and after.
    page.locator("#pane-last").get_by_label("Stage before").click()
    assert "after backend-types" in page.locator("#pane-last select option:checked").inner_text()
    # What a pass changed, side by side.
    page.keyboard.press("p")
    assert any("aten.softmax.int" in each for each in page.locator(".cell.removed").all_inner_texts())
    assert page.locator(".pass-list button").count() < 20
    page.locator(".pass-side input").check()
    assert page.locator(".pass-list button").count() > 40
    opened.picture("passes")
    opened.check_accessible()
    # The graph moves and grows, and its panel describes an operation.
    page.keyboard.press("g")
    picture = page.locator(".picture")
    before = picture.get_attribute("transform")
    page.locator(".graph-host").hover()
    page.mouse.wheel(0, -300)
    assert picture.get_attribute("transform") != before
    page.get_by_label("Fit the graph").click()
    page.locator(".operation > .hit", has_text="aten.softmax").click()
    details = page.locator(".details").inner_text()
    assert "2×3 float32" in details
    assert "pages.py:" in details
    assert "aten.mul.Tensor" in details
    assert page.locator(".operation.border").count() == 2
    opened.picture("graph")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    opened.check_accessible()


@pytest.mark.slow
def test_module_tree(open_page: Open):
    opened = open_page("resnet", pages.resnet())
    page = opened.page
    page.click("#tab-graph")
    for group in ("layers", "2", "0"):
        page.locator(".closed > .hit", has_text=f"▸ {group} ·").first.press("Enter")
    assert page.locator(".graph .group:not(.closed)").count() == 4
    opened.picture("graph")
    opened.check_accessible()
    page.keyboard.press("g")

    page.get_by_role("button", name="Compare with another stage").click()
    page.locator("#pane-first select").select_option("0")
    page.click("#tab-modules")
    page.get_by_label("Submodules of layers").click()
    page.locator(".modules").get_by_role("button", name="3", exact=True).click()
    assert page.url.endswith("#module/layers.3")
    assert opened.line("first", "p_layers_3_0_reduce_0_weight").count() == 1
    assert opened.line("first", "p_layers_2_0_reduce_0_weight").count() == 0
    assert page.locator("#pane-last .cm-foldPlaceholder").count() >= 2
    opened.picture("modules")
    opened.check_accessible()
    page.click("#tab-constants")
    opened.picture("constants")
    opened.check_accessible()


@pytest.mark.slow
def test_keyboard_and_theme(open_page: Open):
    opened = open_page("small", pages.verified())
    page = opened.page
    page.locator("#pane-source .cm-content").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("location.hash === '#source/0/2'")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("location.hash.startsWith('#last/')")
    page.click("#theme")
    page.click("#theme")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(13, 17, 23)"
    page.click("#tab-checks")
    cells = page.locator("#overview td").all_text_contents()
    assert cells[:4] == ["jit", "main[0]", "output", "float32[2, 3]"]
    opened.picture("dark")
    page.locator("#pane-source .close").click()
    assert page.locator(".pane:visible").count() == 1
    page.locator("#hidden-panes button").first.click()
    opened.check_accessible()


def test_in_a_notebook(browser: Any, tmp_path: Path):
    """The report in a cell: a frame without access to the notebook, whose address follows as that of a page."""
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><title>A notebook</title>{Report(pages.verified())._repr_html_()}")
    page = browser.new_page(viewport={"width": 1200, "height": 700})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(notebook.as_uri())
    cell = page.frame_locator("iframe")
    cell.locator("#tab-graph").click()
    cell.locator(".operation > .hit").first.click()
    assert cell.locator("#pane-source .cm-line.linked").count() == 1
    address = page.frames[1].evaluate("location.hash")
    assert address.startswith("#")
    assert len(address) > 1
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "notebook.png")
    page.close()
    assert problems == []


def test_failing(open_page: Open):
    opened = open_page("failing", pages.failing())
    page = opened.page
    assert page.locator("#tab-problems").get_attribute("aria-expanded") == "true"
    assert "_standard_gamma" in (page.locator("#overview").text_content() or "")
    assert "_standard_gamma(" in (page.locator("#pane-source .cm-line.refused").first.text_content() or "")
    assert "_standard_gamma" in (page.locator("#pane-last .cm-line.refused").first.text_content() or "")
    opened.picture("problems")
    page.click("#tab-graph")
    assert "_standard_gamma" in (page.locator(".operation.refused").first.text_content() or "")
    opened.picture("graph")
    opened.check_accessible()


def test_first_operation_that_differs_is_red(open_page: Open):
    opened = open_page("differing", pages.differing())
    page = opened.page
    assert "differs from PyTorch" in page.locator("#facts").inner_text()
    assert "gelu(x)" in (page.locator("#pane-source .cm-line.refused").first.text_content() or "")
    page.get_by_role("button", name="Compare with another stage").click()
    page.locator("#pane-first select").select_option("0")
    assert "aten.gelu" in (page.locator("#pane-first .cm-line.refused").first.text_content() or "")
    page.click("#tab-graph")
    assert page.locator(".operation.refused").count() == 1
    opened.picture("graph")
    opened.check_accessible()


def test_ten_thousand_operations(open_page: Open):
    contents = pages.large()
    opened = open_page("large", contents)
    page = opened.page
    page.wait_for_selector("#pane-last .cm-line")
    assert opened.seconds < 2
    started = time.perf_counter()
    page.click("#tab-graph")
    for _ in range(3):
        page.locator(".closed > .hit").last.press("Enter")
    page.locator(".operation").first.wait_for()
    assert time.perf_counter() - started < 3
    assert page.locator(".graph .group, .operation").count() < 200
    opened.picture("graph")
    page.click("#tab-stages")
    page.locator("button.changes").last.click()
    assert page.locator("#pane-last .cm-line.added").count()
    opened.picture("changes")


def test_reports_with_little_in_them(open_page: Open):
    contents = pages.large(3)
    opened = open_page("three", contents)
    assert opened.line("last", "arith.addf").count() == 1
    nothing = {**contents, "views": [], "stages": [], "files": [], "sites": [], "site_sets": [[]]}
    failed = {**nothing, "error": "the model could not be exported", "outcome": "failed"}
    page = open_page("nothing", failed).page
    assert page.locator(".pane").count() == 0
    assert "could not be exported" in page.locator("#overview").text_content()
