"""Reports among temporary files are kept to a number and a size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fx_importer.diagnostics.reports import bundle


def report(folder: Path, number: int, size: int) -> Path:
    directory = folder / f"fx-importer-linalg-failed-{number:02}"
    directory.mkdir()
    (directory / "report.json").write_bytes(b"x" * size)
    os.utime(directory, (number, number))
    return directory


@pytest.mark.parametrize("size, kept", [(10, 20), (70, 14)], ids=["number", "bytes"])
def test_the_newest_reports_are_kept(tmp_path, monkeypatch, size, kept) -> None:
    monkeypatch.setattr(bundle, "MAX_BYTES", 1000)
    made = [report(tmp_path, number, size) for number in range(25)]
    other = tmp_path / "fx-importer-other"
    other.mkdir()
    link = tmp_path / "fx-importer-linalg-failed-link"
    link.symlink_to(other)
    bundle.remove_old_reports(made[-1])
    assert [each.exists() for each in made] == [False] * (25 - kept) + [True] * kept
    assert link.is_symlink()
    assert other.is_dir()
