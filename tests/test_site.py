"""The documentation site builds without a warning, and has every public name, menu entry and link target."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fx_importer

for name in ("sphinx", "myst_nb", "furo", "sphinx_copybutton"):
    pytest.importorskip(name, reason="of the extra 'docs'")

ROOT = Path(__file__).parents[1]


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
    assert "filter.js" in (built / "docs" / "models.html").read_text()
