"""Source lines in messages: those of Python files, whatever a location names."""

import pytest

from fx_importer.diagnostics.source_lines import source_line


def test_line_of_a_python_file(tmp_path):
    (tmp_path / "model.py").write_text("import torch\n    x = 1\n")
    assert source_line(str(tmp_path / "model.py"), 2) == "x = 1"
    assert source_line(str(tmp_path / "model.py"), 20) is None


@pytest.mark.parametrize("file", ["/dev/zero", "/etc/hosts", "/dev/zero/a.py", "", "a\0b.py", "x" * 5000 + ".py"])
def test_other_files_are_not_read(file):
    assert source_line(file, 1) is None
