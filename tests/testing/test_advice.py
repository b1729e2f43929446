"""The tool that follows suggestions: it reads each kind, and a false one is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.export import Dim

from testing.advice import Followed, Row, summary
from testing.advising import followers
from testing.advising.programs import Program, program_of

pytestmark = pytest.mark.advice

X = torch.ones(3, 4, dtype=torch.float64)
OPTIONS = {"output_type": "tosa", "keep": ["aten.roll", "aten.relu"], "narrow_integers": True}
PROGRAM = Program("double", lambda x: x + x, (X,), OPTIONS)

KINDS = {
    "output_type='linalg-on-tensors' or output_type='stablehlo', which supports it": ["output_type", "output_type"],
    "fallback='stablehlo': only this operator is lowered to it": ["fallback"],
    "unsupported='outline': PyTorch computes this operator, as a function that the module declares": ["unsupported"],
    "without keep='aten.roll': it has a decomposition": ["keep"],
    "without narrow_integers: TOSA's extension EXT-INT64 has integers of 64 bits": ["narrow_integers"],
    "static sizes, without dynamic_shapes": ["static sizes"],
    "float32 instead of float64": ["dtype"],
    "a decomposition of your own, extra={torch.ops.aten.roll.default: function}": ["extra"],
    "x.long(): int64 instead of torch.uint8": ["long"],
    "dynamic_shapes with Dim.STATIC for 'batch'": ["static dimension"],
}


@pytest.mark.parametrize("text", KINDS)
def test_suggestions_are_read(text: str) -> None:
    program = PROGRAM.with_(dynamic_shapes=({0: Dim("batch")},))
    changes = list(followers.changes_of(text, program))
    assert [kind for kind, _ in changes] == KINDS[text]
    changed = changes[0][1]()
    assert (changed.options, changed.args[0].dtype) != (program.options, X.dtype)


def test_false_suggestions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def lowered(program: Program) -> None:
        if program.options["output_type"] == "stablehlo":
            raise ValueError("no such operator")

    monkeypatch.setattr(followers, "lowered", lowered)
    (text, *_) = KINDS
    found = [*followers.follow(text, PROGRAM), *followers.follow("prayer", PROGRAM)]
    assert [(each.kind, each.holds) for each in found] == [
        ("output_type", True),
        ("output_type", False),
        ("not understood", False),
    ]
    rows = [Row(0, "a", "lowers"), Row(1, "b", "StageFailed", tuple(found)), Row(2, "c", "ExportError")]
    assert "3 suggestions followed: 1 true, 2 false" in summary(rows, 1)
    assert "2 fail, 1 of them without a suggestion" in summary(rows, 1)
    assert Followed(text, "output_type", True) in found


def test_programs_depend_on_seed_and_index_only() -> None:
    first, again = program_of(3, 5), program_of(3, 5)
    assert str(first) == str(again)
    torch.testing.assert_close(first.args, again.args)
    assert str(replace(first, name="")) != str(replace(program_of(3, 6), name=""))
