"""The table of operators agrees with the pages that it is made of."""

from __future__ import annotations

import pytest

from benchmarks import op_table
from benchmarks.rows import section_of


@pytest.fixture(scope="module")
def statuses():
    return op_table.statuses()


@pytest.mark.parametrize("column", ["first", *op_table.DTYPES])
def test_totals_are_the_recorded_ones(statuses: dict[str, dict[str, op_table.Status]], column: str):
    assert op_table.totals(statuses, column) == op_table.recorded(column)


def test_the_page_is_current(statuses: dict[str, dict[str, op_table.Status]]):
    assert section_of(op_table.PAGE, "operators").strip() == op_table.table(statuses)
    assert section_of(op_table.PAGE, "models").strip() == op_table.models()


def test_exceptions_are_named():
    text = section_of(op_table.PAGE, "operators")
    assert "| `view_as_complex` | f32 f16 | ✓ | ✓ | ✓ | ✓ | ✓ but f16: import | ✓ |" in text
    assert "| `nonzero` | f32 bf16 f16 i32 i64 bool c64 | ✓ | ✓ | lower | lower | lower | lower |" in text
