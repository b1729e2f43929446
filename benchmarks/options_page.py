"""Write docs/options.md, the reference of options, from their declarations in `fx_importer.options`.

python -m benchmarks.options_page
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.rows import DOCS
from fx_importer.option_fields import Option
from fx_importer.options import CALL_OPTIONS, GROUPS, OPTIONS

PAGE = DOCS / "options.md"

INTRODUCTION = """# Options

All options of `lower` and `export_and_import`, with the command-line option that has the same effect.
`help(fx_importer.lower)` and `fx-importer import --help` show the same text, since all of them are derived from
`fx_importer/options.py`; `python -m benchmarks.options_page` writes this page.

Other keywords are passed to the model. `options=` takes all options as one frozen value, `fx_importer.options.Options`,
whose groups are the sections below.
"""


def page() -> str:
    """Return the text of the page."""
    sections = [("", "Output type"), *((name, kind.heading) for name, kind in GROUPS.items())]
    lines = [INTRODUCTION]
    for group, heading in sections:
        lines += [f"## {heading}\n", *_table([each for each in OPTIONS if each.group == group and each.keyword]), ""]
    lines += ["## The call\n", "Not part of `Options`.\n", *_table(CALL_OPTIONS)]
    return "\n".join(lines) + "\n"


def _table(options: list[Option] | tuple[Option, ...]) -> Iterator[str]:
    yield "| keyword | default | command line | |"
    yield "|---|---|---|---|"
    for option in options:
        on_command_line = option.has_text and option.group != "call"
        help = " ".join(filter(None, (option.keyword_help, option.command and f"Command line: {option.command}")))
        cells = (
            f"`{option.keyword}`",
            f"`{option.keyword_default!r}`",
            f"`{option.flag}`" if on_command_line else "",
            help.replace("|", "\\|"),
        )
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
