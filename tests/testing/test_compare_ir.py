"""The comparison of IR between a commit and the working tree."""

from pathlib import Path

from testing.compare_ir import differences, dump


def test_dump_writes_a_file_for_each_output_type(tmp_path: Path):
    assert dump(tmp_path, "mlp_dynamic") == 5
    assert "tosa.matmul" in (tmp_path / "mlp_dynamic.tosa.mlir").read_text()


def test_differences_have_the_name_and_the_diff(tmp_path: Path):
    before, after = tmp_path / "before", tmp_path / "after"
    for folder, text in ((before, "a\nb\n"), (after, "a\nc\n")):
        folder.mkdir()
        (folder / "changed.mlir").write_text(text)
        (folder / "same.mlir").write_text("a\n")
    (after / "new.mlir").write_text("x\n")
    ((name, diff), (new, _)) = differences(before, after)
    assert (name, new) == ("changed.mlir", "new.mlir")
    assert "-b\n+c" in diff
