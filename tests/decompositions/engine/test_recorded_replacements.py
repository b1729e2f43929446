"""Replacements that outlive the program in which their rules were traced."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import Dim

from fx_importer import export_and_import
from fx_importer.decompositions.engine.local import graph_copy
from fx_importer.options import Options
from fx_importer.output_types import OutputType
from fx_importer.targets import TARGETS

aten = torch.ops.aten


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = torch.var_mean(torch.nn.functional.gelu(self.linear(x)), -1)
        return a, b, torch.clamp(x.to(torch.int32), 0.5), x[:, 1:] * -0.0


NET, X = Net().eval(), torch.ones(3, 4)


def _text(model: torch.nn.Module = NET, x: torch.Tensor = X, **options: Any) -> str:
    return str(export_and_import(model, x, **options))


def _forgetting() -> None:
    for target in TARGETS.values():
        vars(target).pop("_standard_tables", None)


def test_text_is_the_same_as_of_rules_that_are_traced_anew(monkeypatch):
    traced: list[object] = []
    trace_rule = graph_copy.trace_rule
    monkeypatch.setattr(graph_copy, "trace_rule", lambda *args: traced.append(args[0]) or trace_rule(*args))
    calls: tuple[dict[str, Any], ...] = (
        {},
        {"dynamic_shapes": ({0: Dim.DYNAMIC},)},
        {"x": X.double(), "model": Net().double().eval()},
    )
    for options in calls:
        _forgetting()
        first = _text(output_type="torch", **options)
        before = len(traced)
        assert _text(output_type="torch", **options) == first
        again = traced[before:]
        assert bool(again) == ("dynamic_shapes" in options), again  # sizes of symbols belong to a program


def test_default_dtype_is_a_part_of_the_key():
    class Halved(torch.nn.Module):
        def forward(self, x):
            return aten.special_entr(x)

    x = torch.ones(3, dtype=torch.int32)
    narrow = _text(Halved(), x, output_type="raw")
    torch.set_default_dtype(torch.float64)
    try:
        assert ("f64" in _text(Halved(), x, output_type="raw")) != ("f64" in narrow)
    finally:
        torch.set_default_dtype(torch.float32)


def test_autocast_is_a_part_of_the_key():
    class Scaled(torch.nn.Module):
        def forward(self, x):
            return torch.addmm(x, x, x, alpha=2.0)

    program = torch.export.export(Scaled(), (torch.ones(5, 5),))
    texts = []
    for _ in range(2):
        for enabled in (True, False):
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                texts.append(str(export_and_import(program, output_type="torch")))
    assert ["bf16" in text for text in texts] == [True, False, True, False]
    assert texts[:2] == texts[2:]


def test_rules_of_users_are_called_again():
    factors = iter((2.0, 3.0))

    def scaled(x):
        return x * next(factors)

    texts = [_text(torch.nn.ReLU(), extra={aten.relu.default: scaled}, output_type="raw") for _ in range(2)]
    assert "2.0" in texts[0]
    assert "3.0" in texts[1]


def test_records_hold_no_values_of_a_program():
    _forgetting()
    export_and_import(NET, X, output_type="torch")
    recorded = TARGETS[OutputType.TORCH].table(Options(output_type=OutputType.TORCH), ()).recorded
    assert recorded is not None
    pieces = [piece for piece, _ in recorded._known.values()]
    values = [node.meta.get("val") for piece in pieces for step in piece.steps for node in step.graph.nodes]
    assert values
    assert {type(value) for value in values} <= {torch.Tensor, type(None)}
