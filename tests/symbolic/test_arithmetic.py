"""The interpreter of arithmetic against Python's own evaluation."""

from __future__ import annotations

import ast
import logging
import math
from typing import Any

import pytest
import torch

from fx_importer.errors import UsageError
from fx_importer.fx_graph.program_files import read_program
from fx_importer.symbolic import file_guards
from fx_importer.symbolic.arithmetic import Arithmetic
from fx_importer.symbolic.expressions import FUNCTIONS, SizeExpression
from fx_importer.symbolic.guards import guard_texts, restore_guards


@pytest.mark.parametrize(
    "text",
    [
        "a + 2*b - -3",
        "a // b % 4",
        "a / b",
        "max(a, b, 5) + min(a, 4) - abs(b - a)",
        "round(a / 3, 1) + float(b)",
        "math.ceil(a / b) + math.floor(a / b) + math.trunc(-a / b)",
        "a < b <= 9 != a",
        "not (a == b) and (a > -9 or 1 // (a - a))",
        "a > 100 and 1 // (a - a)",
        "0 or a and b",
        "1 // (a - 7) if a != 7 else b",
        "a if a > b else b if b > 3 else 0",
        "a**2 - b**3",
    ],
)
def test_results_are_those_of_python(text: str):
    for a, b in [(7, 3), (2, 9), (-5, 3)]:
        assert SizeExpression(text).value({"a": a, "b": b}) == eval(text, {"math": math, "a": a, "b": b})


def test_long_sums_and_errors():
    assert SizeExpression(" + ".join(["a"] * 300)).value({"a": 2}) == 600
    assert SizeExpression("a % b").value({"a": 2, "b": 0}) is None
    assert SizeExpression("((((((a**4)**4)**4)**4)**4)**4)**4").value({"a": 1000}) is None
    assert SizeExpression("a % (b + c)").symbols == {"a", "b", "c"}


@pytest.mark.parametrize(
    "text",
    ["max(a)", "abs(a, a)", "max(*a)", "abs(x=a)", "exec(a)", "a.b", "math.factorial(a)", "a << a", "a ** a", "a ** 9"],
)
def test_other_text_is_refused(text: str):
    with pytest.raises(ValueError, match="is not an expression of sizes"):
        SizeExpression(text)
    with pytest.raises(ValueError, match=r"arguments|in an expression of sizes"):
        Arithmetic(ast.parse(text, mode="eval").body, lambda _: None, FUNCTIONS)


class Inputs(torch.nn.Module):
    def forward(self, x, d, *rest, k):
        if x.shape[0] * k.shape[0] > 20:
            return x
        return x.reshape(-1, 2, 3), d["a"].reshape(-1, 2), [each.reshape(-1, 2) for each in rest], k


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("guards") / "m.pt2"
    x, size = torch.ones(4, 3), {0: torch.export.Dim.AUTO}
    shapes = {"x": size, "d": {"a": size}, "rest": (size, size), "k": size}
    torch.export.save(torch.export.export(Inputs(), (x, {"a": x}, x, x), {"k": x}, dynamic_shapes=shapes), path)
    return path


def test_guards_of_a_file_are_those_of_torch(file):
    """Of inputs in dictionaries, variable arguments and keywords; torch executes the text."""
    ours, theirs = read_program(file), torch.export.load(file)
    restore_guards(ours)
    module: Any = theirs.module()
    module._guards_fn(*(node.meta["val"] for node in module.graph.find_nodes(op="placeholder")))
    assert guard_texts(ours) == guard_texts(theirs) != {}


@pytest.mark.parametrize(
    ("guard", "sentence"),
    [
        ("L['x'].size()[0] == 'a' or L['x'].size()[1] == 4", None),
        ("L['x'].size()[1] == 4", "does not hold for its own sizes"),
        ("L['x'].size()[0] % (L['x'].dim() - 2) == 0", "cannot be computed"),
        ("L['absent'].size()[0] == 4", None),
        ("L['x'].size()[9] == 4", None),
        ("__import__('os')", None),
    ],
)
def test_edited_guards(file, logged: list[logging.LogRecord], guard: str, sentence: str | None):
    """Those that cannot be read are logged."""
    program = read_program(file)
    if sentence is None:
        file_guards.assume(program, guard)
        assert "callers do not check the guard" in logged[-1].getMessage()
    else:
        with pytest.raises(UsageError, match=sentence):
            file_guards.assume(program, guard)
