"""The documentation site builds without a warning, and has every public name, menu entry and link target."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fx_importer
from tests.diagnostics.explorer.browsers import AXE, CHROMIUM, serious_problems, started

if not all(map(importlib.util.find_spec, ("sphinx", "myst_nb", "furo", "sphinx_copybutton"))):
    pytest.skip("the extra 'docs' is not installed", allow_module_level=True)

ROOT = Path(__file__).parents[1]
SCREENSHOTS = ROOT / "out" / "site"


QUESTIONS = ROOT / "docs" / "measurements" / "questions.md"

FIRST_RESULTS = 6


@pytest.mark.new_interpreter
@pytest.mark.slow
def test_site(tmp_path: Path):
    built = tmp_path / "site"
    options = [
        "-c",
        "docs",
        "-b",
        "html",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "-d",
        str(tmp_path / "cache"),
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ".", str(built)],
        cwd=ROOT,
        env=os.environ | {"NOTEBOOKS": "off"},  # tests/test_notebooks.py runs them
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    reference = (built / "docs" / "reference" / "fx_importer.html").read_text()
    assert [each for each in vars(fx_importer)["__all__"] if f'id="fx_importer.{each}"' not in reference] == []
    menu = (built / "docs" / "index.html").read_text()
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.ipynb")]
    missing = [each.stem for each in pages if each.stem != "index" and f"{each.stem}.html" not in menu]
    assert missing == []
    assert "url=docs/index.html" in (built / "index.html").read_text()
    assert 'href="explorer-sample.html"' in (built / "docs" / "explorer.html").read_text()
    assert (built / "docs" / "explorer-sample.html").stat().st_size < 3e6
    assert "filter.js" in (built / "docs" / "operators.html").read_text()
    if CHROMIUM:
        pictures = {path.name for path in (built / "docs" / "screenshots").iterdir()}
        assert len(pictures) == 12
        assert pictures == set(
            re.findall(r'src="screenshots/([^"]+)"', (built / "docs" / "screenshots.html").read_text())
        )
        with started() as browser:
            check_questions(browser.new_page(), built)
            check_widths(browser, built)


def check_questions(page: Any, site: Path) -> None:
    """Search for the words of each question, and look for the page and the section that answer it."""
    lines = [line for line in QUESTIONS.read_text().splitlines() if line.startswith("| ")]
    for question, words, name, section in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]):
        page.goto(f"{(site / 'search.html').as_uri()}?q={words.replace(' ', '+')}")
        page.wait_for_function(
            "/found|not match/.test(document.querySelector('#search-results .search-summary')?.textContent)"
        )
        links = page.locator("#search-results ul.search li a").evaluate_all("all => all.map(each => each.pathname)")
        results = list(dict.fromkeys(Path(link).stem for link in links))
        assert name in results[:FIRST_RESULTS], f"{question} {results[:10]}"
        text = re.sub("<[^>]+>", "", (site / "docs" / f"{name}.html").read_text())
        assert section in text, f"{question} {section}"


def check_widths(browser: Any, site: Path) -> None:
    """Open pages on a desk, a tablet and a phone. Pictures are left in out/site.

    None is wider than the window, and axe-core finds nothing serious in the text.
    """
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for name in ("index", "first-ten-minutes", "operators", "reference/fx_importer", "performance", "architecture"):
        for width, scheme in ((1440, "light"), (1024, "dark"), (390, "light"), (390, "dark")):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.goto((site / "docs" / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} at {width}"
            page.screenshot(path=SCREENSHOTS / f"{name.replace('/', '-')}-{width}-{scheme}.png")
            if width == 1440 and AXE.exists():
                assert not serious_problems(page), name
            page.close()
