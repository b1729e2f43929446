import pytest
import torch

from fx_importer.decompositions import (
    BASE,
    LINALG,
    STABLEHLO,
    TOSA,
    DecompositionTable,
    decomposes,
    get_decomposition_table,
)
from fx_importer.errors import UsageError

aten = torch.ops.aten


@decomposes(aten.square.default)
def square(x):
    return x * x


@decomposes(aten.square.default)
def another_square(x):
    return x**2


def test_decomposition_calls_its_rule() -> None:
    assert square.operators == (aten.square.default,)
    assert square(3) == 9


def test_packet_key_covers_its_overloads() -> None:
    both = decomposes(aten.eye)(lambda *args: None)
    assert {aten.eye.default, aten.eye.m} <= set(both.operators)


def test_methods_return_new_tables() -> None:
    empty = DecompositionTable()
    one = empty.adding(square)
    assert len(empty) == 0
    assert list(one) == [aten.square.default]
    assert one[aten.square.default] is square.rule
    assert aten.square.default not in one.keeping(aten.square)
    assert aten.square.default in one


def test_two_rules_for_an_operator_are_an_error() -> None:
    with pytest.raises(UsageError, match=r"aten.square.default .*\.square and .*\.another_square: .*replacing"):
        DecompositionTable().adding(square, another_square)


def test_replacing() -> None:
    table = DecompositionTable().adding(square).replacing(another_square)
    assert table[aten.square.default] is another_square.rule


def test_rules_of_torch() -> None:
    table = DecompositionTable().from_torch(aten.elu.default, aten.eye)
    assert {aten.elu.default, aten.eye.m} <= set(table)
    assert table[aten.elu.default](torch.tensor(2.0)) == 2.0
    with pytest.raises(UsageError, match=r"torch has no decomposition of aten\.convolution\.default"):
        DecompositionTable().from_torch(aten.convolution.default)


def test_key_that_is_a_string_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"keyed by an operator, such as .*, not by 'aten\.square'"):
        BASE.keeping("aten.square")  # type: ignore[arg-type]


def test_returned_table_is_a_copy() -> None:
    table = get_decomposition_table()
    assert table == dict(LINALG)
    table.clear()
    assert get_decomposition_table()


def test_reason_of_a_line() -> None:
    table = DecompositionTable({aten.square.default: square.rule}, because="for the test").keeping(
        aten.relu.default, because="it is fine"
    )
    assert {str(key): (line.rule_name.rpartition(".")[2], line.reason) for key, line in table.lines.items()} == {
        "aten.square.default": ("square", "for the test"),
        "aten.relu.default": ("", "it is fine"),
    }
    assert list(table) == [aten.square.default]
    layered = table.preferring(another_square, because="better").lines[aten.square.default]
    assert layered.reason == "better; else: for the test"
    assert layered.rule_name.endswith(".square")
    assert ".another_square, else " in layered.rule_name


@pytest.mark.parametrize("table", [BASE, LINALG, TOSA, STABLEHLO], ids=["base", "linalg", "tosa", "stablehlo"])
def test_every_line_has_a_reason(table: DecompositionTable) -> None:
    assert [str(operator) for operator, line in table.lines.items() if not line.reason] == []
