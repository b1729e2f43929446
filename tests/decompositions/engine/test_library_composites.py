"""Rules by name: tables that installed packages offer in the entry points ``fx_importer.decompositions``."""

import pytest
import torch

from fx_importer import UsageError, lower

x = torch.tensor([1.0, -2.0])


@pytest.fixture(autouse=True)
def operator():
    with torch.library._scoped_library("offered", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        torch.library.register_fake("offered::twice", torch.empty_like, lib=library)
        yield


def offer(monkeypatch: pytest.MonkeyPatch, folder, table: str) -> None:
    """Install a package that offers ``table``, an expression, for the operators of ``offered``."""
    (folder / "offered_rules.py").write_text(f"table = {table}\n")
    info = folder / "offered_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offered-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fx_importer.decompositions]\noffered = offered_rules:table\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(__import__("sys").modules, "offered_rules", raising=False)


def twice(x):
    return torch.ops.offered.twice(x) + 1


@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
def test_rule_of_a_package(output_type: str, monkeypatch, tmp_path):
    offer(monkeypatch, tmp_path, "{'offered::twice': lambda x: x + x}")
    lowered = lower(twice, x, output_type=output_type)
    assert "offered" not in str(lowered.module)
    torch.testing.assert_close(lowered.run(x), 2 * x + 1)


@pytest.mark.parametrize(
    "table, message",
    [
        (
            "{'offered::twice': 3}",
            r"the entry point 'offered = offered_rules:table' in 'fx_importer.decompositions' is",
        ),
        ("[]", r"such as 'offered::name', to functions is accepted"),
        ("1 / 0", r"cannot be imported: ZeroDivisionError"),
    ],
)
def test_table_that_is_none(table: str, message: str, monkeypatch, tmp_path):
    offer(monkeypatch, tmp_path, table)
    with pytest.raises(UsageError, match=message):
        lower(twice, x, output_type="linalg")
