"""Checks before a release."""

import re
import subprocess
from pathlib import Path

import pytest

from testing.release import ROOT, commands, main, problems, version_of


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository that can be released as 1.2.3."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3" # the only place\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3] - 2026-11-27\n\n- New.\n\n## [1.2.2]\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "x")
    return tmp_path


def git(root: Path, *arguments: str) -> None:
    name = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    subprocess.run(["git", *name, *arguments], cwd=root, check=True)


def test_clean_checkout_has_no_problems(checkout: Path, capsys: pytest.CaptureFixture[str]):
    assert list(problems(checkout)) == []
    assert main(["--dry-run"], checkout) == 0
    out = capsys.readouterr().out
    assert "$ git tag --annotate v1.2.3" in out
    assert "v1.2.3 would be tagged" in out


@pytest.mark.parametrize(
    "file, text, message",
    [
        ("new.py", "", "the working tree has uncommitted changes"),
        ("pyproject.toml", 'version = "1.3.dev1"\n', "the version 1.3.dev1 in pyproject.toml is not of the form 1.2.3"),
        ("CHANGELOG.md", "## [Unreleased]\n", r"is '\[Unreleased\]', and not '\[1.2.3\] - YYYY-MM-DD'"),
        ("CHANGELOG.md", "## [1.2.3] - 2026-11-27\n", "the section of 1.2.3 in CHANGELOG.md is empty"),
        ("CHANGELOG.md", "## [1.2.3] - 2026-11-27\n" + "- x\n" * 100, "has 100 lines: keep it to one screen"),
    ],
)
def test_problems_are_reported(checkout: Path, file: str, text: str, message: str):
    (checkout / file).write_text(text)
    assert any(re.search(message, problem) for problem in problems(checkout))
    assert main([], checkout) == 1


def test_a_version_is_tagged_once(checkout: Path):
    git(checkout, "tag", "v1.2.3")
    assert list(problems(checkout)) == ["the tag v1.2.3 exists: set the next version in pyproject.toml"]


def test_this_tree_has_a_section_of_its_version():
    version = version_of(ROOT)
    section = "Unreleased" if ".dev" in version else version
    assert f"\n## [{section}]" in (ROOT / "CHANGELOG.md").read_text()
    assert commands(version)[-1][:2] == ("git", "tag")
