"""Sizes that reshapes compute by division of the number of elements."""

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.pipelines import run_text


def folded(map_: str, divisor: int) -> str:
    """Return a function that divides a size after ``map_`` by ``divisor``."""
    context = new_context()
    load_dialects(context)
    text = f"""func.func @main(%n: index) -> index {{
      %c = arith.constant {divisor} : index
      %m = affine.apply affine_map<()[s0] -> (s0 * 2)>()[%n]
      %e = affine.apply affine_map<{map_}>()[%m]
      %q = arith.divsi %e, %c : index
      return %q : index
    }}"""
    module = ir.Module.parse(text, context)
    run_text("builtin.module(fx-importer-fold-size-divisions,func.func(canonicalize))", module)
    module.operation.verify()
    return module.operation.get_asm(use_local_scope=True)


def test_division_by_the_factor_is_the_size() -> None:
    text = folded("()[s0] -> (s0 * 32)", 64)
    assert "divsi" not in text
    assert "return %arg0" in text


def test_division_by_part_of_the_factor_is_a_multiple() -> None:
    text = folded("()[s0] -> (s0 * 48)", 32)
    assert "divsi" not in text
    assert "()[s0] -> (s0 * 3)" in text


@pytest.mark.parametrize(
    ("map_", "divisor"),
    [("()[s0] -> (s0 * 32)", 48), ("()[s0] -> (s0 * 32 + 64)", 64), ("()[s0] -> (s0 * 32)", -64)],
    ids=["not a divisor", "offset", "negative"],
)
def test_other_divisions_stay(map_: str, divisor: int) -> None:
    assert "divsi" in folded(map_, divisor)
