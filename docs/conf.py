"""The documentation site, which Sphinx builds of the pages on GitHub: ``make docs``.

Its source directory is the repository, so that links between pages, CONTRIBUTING.md, notebooks and files are the same
in both. What is in the menu, and where, are the lists of ``docs/index.md``.
"""

from __future__ import annotations

import builtins
import importlib.metadata
import os
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from mlir_pygments import MLIRLexer
from pygments.lexers.special import TextLexer
from sphinx.addnodes import pending_xref
from sphinx.ext.napoleon.docstring import GoogleDocstring

import fx_importer
from testing.screenshots import take_pictures
from tests.diagnostics.explorer.browsers import CHROMIUM

project, author = "fx-importer", "The fx-importer authors"
copyright = author
release = importlib.metadata.version("fx-importer")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["docs/**", "examples/*.ipynb", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
nitpicky = False  # docstrings link names of torch and of internal modules too
suppress_warnings = ["misc.highlighting_failure"]  # excerpts of MLIR are no whole modules
show_warning_types = True

html_theme = "furo"
html_title = f"fx-importer {release}"
html_static_path = ["_static"]
html_js_files = ["accessible.js", "filter.js"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
html_copy_source = False

myst_heading_anchors = 4  # as on GitHub
myst_enable_extensions = ["fieldlist"]
nb_execution_mode = os.environ.get("NOTEBOOKS", "force")
nb_execution_timeout = 300
nb_execution_excludepatterns = ["photo.ipynb", "sentence_encoder.ipynb", "smollm2.ipynb"]  # tests/test_notebooks.py
nb_execution_raise_on_error = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
default_role = "py:obj"

# The text of an attribute is no "type: description", even if there is a colon in it.
GoogleDocstring._consume_inline_attribute = lambda self: ("", self._consume_to_end())

SAMPLE = "explorer-sample.html"
SCREENSHOTS = "screenshots"
"""The page and the folder of pictures."""

_SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n?)*)", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#]+?)(?:\.md|\.ipynb)\)")


def add_menu(app: Any, name: str, content: list[str]) -> None:
    """Append a hidden table of contents for each section of the start page: the pages that its list links to."""
    if name != root_doc:
        return
    for title, text in _SECTION.findall(content[0]):
        pages = "\n".join(dict.fromkeys(_LINK.findall(text)))
        content[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n"


def skip_again(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Skip what a package has that the section of ``fx_importer`` has already."""
    if app.env.temp_data.get("autodoc:module") == "fx_importer" or name not in vars(fx_importer)["__all__"]:
        return None
    return True if getattr(fx_importer, name) is member else None


def unlink_builtins(app: Any, doctree: nodes.document) -> None:
    """Unlink the names of builtins, such as ``type``: Sphinx looks for attributes that are called so."""
    for link in [*doctree.findall(pending_xref)]:
        if link["refdomain"] == "py" and hasattr(builtins, link["reftarget"]):
            link.replace_self(link.children)


def write_redirect(app: Any, exception: Exception | None) -> None:
    """Write ``index.html`` at the root of the site, which leads to the start page."""
    if exception is None and app.builder.name == "html":
        Path(app.outdir, "index.html").write_text(
            f'<!doctype html><title>fx-importer</title><meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
        )


def add_pages(app: Any) -> Iterator[tuple[str, dict[str, str], str]]:
    """Write the explorer of examples/attention.py; with Chromium, take pictures of it and the playground.

    Yields:
        the page of the pictures.
    """
    if app.builder.name != "html":
        return
    model, args = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "attention.py"))["build"]()
    sample = Path(app.outdir, "docs", SAMPLE)
    sample.parent.mkdir(parents=True, exist_ok=True)
    fx_importer.lower(model, *args, output_type="tosa").report(sample)
    if CHROMIUM:
        pictures = take_pictures(sample, sample.with_name(SCREENSHOTS))
        figures = [
            f'<h2>{path.stem.replace("-", ", ")}</h2><img src="{SCREENSHOTS}/{path.name}" alt="{path.stem}">'
            for path in pictures
        ]
        body = f"<h1>Screenshots</h1><p>First views in headless Chromium, by width in pixels.</p>{''.join(figures)}"
        yield f"docs/{SCREENSHOTS}", {"title": "Screenshots", "body": body}, "page.html"


def add_sample_link(app: Any, name: str, content: list[str]) -> None:
    """Link the sample and the pictures below the title of the explorer's page, which GitHub shows without them."""
    if name == "docs/explorer":
        title, _, rest = content[0].partition("\n")
        link = f'<a class="reference" href="{SAMPLE}">Open a sample</a>: an attention layer in TOSA.'
        if CHROMIUM:
            link += f' <a class="reference" href="{SCREENSHOTS}.html">Screenshots</a> of it and of the playground.'
        content[0] = f"{title}\n\n{link}\n{rest}"


def setup(app: Any) -> None:
    app.connect("source-read", add_sample_link)
    app.connect("doctree-read", unlink_builtins)
    app.connect("html-collect-pages", add_pages)
    app.connect("source-read", add_menu)
    app.connect("autodoc-skip-member", skip_again)
    app.connect("build-finished", write_redirect)
    app.add_lexer("mlir", MLIRLexer)
    app.add_lexer("ebnf-mlir", TextLexer)
