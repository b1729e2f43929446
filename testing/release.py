"""Cut a release: check the tree, run the tests, build and check the distributions, tag. See docs/releases.md.

python -m testing.release --dry-run     # checks only, and prints the commands
python -m testing.release               # make release
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]

MAX_LINES = 70
"""Lines of a release in CHANGELOG.md: one screen."""


def version_of(root: Path) -> str:
    """Return the version in pyproject.toml, the only place that has it."""
    match = re.search(r'^version = "([^"]+)"', (root / "pyproject.toml").read_text(), re.MULTILINE)
    if match is None:
        raise SystemExit("pyproject.toml has no version")
    return match[1]


def problems(root: Path) -> Iterator[str]:
    """Yield a sentence for each reason why the checkout ``root`` cannot be released."""
    version = version_of(root)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield f"the version {version} in pyproject.toml is not of the form 1.2.3"
    if _git(root, "status", "--porcelain"):
        yield "the working tree has uncommitted changes: commit or remove them"
    if f"v{version}" in _git(root, "tag", "--list").split():
        yield f"the tag v{version} exists: set the next version in pyproject.toml"
    sections = re.split(r"^## ", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    heading, _, text = sections[0].partition("\n") if sections else ("", "", "")
    if not re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}", heading.strip()):
        yield f"the first section of CHANGELOG.md is '{heading.strip()}', and not '[{version}] - YYYY-MM-DD'"
    elif not text.strip():
        yield f"the section of {version} in CHANGELOG.md is empty"
    elif (lines := len(text.strip().splitlines())) > MAX_LINES:
        yield f"the section of {version} in CHANGELOG.md has {lines} lines: keep it to one screen, {MAX_LINES}"


def commands(version: str) -> Sequence[Sequence[str]]:
    """Return the commands that make the release, in order. A failing one ends it; the tag is the last."""
    python = sys.executable
    wheel, source = f"dist/fx_importer-{version}-py3-none-any.whl", f"dist/fx_importer-{version}.tar.gz"
    return (
        ("make", "test", "ratios"),
        (python, "-m", "build", "--no-isolation", "--outdir", "dist"),
        (python, "-m", "twine", "check", "--strict", wheel, source),
        (python, "-m", "check_wheel_contents", wheel),
        ("git", "tag", "--annotate", f"v{version}", "--message", f"fx-importer {version}"),
    )


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="check, and print the commands without running them")
    dry_run = parser.parse_args(arguments).dry_run
    version = version_of(root)
    if found := list(problems(root)):
        print(f"{version} cannot be released:", *found, sep="\n  ")
        return 1
    for command in commands(version):
        print("$", *command, flush=True)
        if not dry_run and (code := subprocess.run(command, cwd=root, check=False).returncode):
            print(f"not released: the command ended with exit code {code}")
            return code
    print(f"v{version} would be tagged" if dry_run else f"v{version} is tagged: git push origin v{version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
