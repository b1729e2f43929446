"""``keep=`` and ``extra=``, for models and for exported programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fx_importer import UsageError, compare_decompositions, export_and_import, lower

aten = torch.ops.aten


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.linear(x))


X = torch.randn(4, 3)
PROGRAM = torch.export.export(Model(), (X,))


def silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-x))


def operators(*call: Any, **options: Any) -> set[str]:
    program = lower(*call, **options).program
    return {str(node.target) for node in program.graph.nodes if node.op == "call_function"}


@pytest.mark.parametrize("call", [(Model(), X), (PROGRAM,)], ids=["model", "program"])
@pytest.mark.parametrize(
    "keep", ["aten.linear", "torch.aten.linear.default", aten.linear, aten.linear.default], ids=str
)
def test_kept_operator_is_not_decomposed(call: Any, keep: Any) -> None:
    assert "aten.linear.default" not in operators(*call)
    assert operators(*call, keep=[keep]) >= {"aten.linear.default", "aten.sigmoid.default"}


@pytest.mark.parametrize("call", [(Model(), X), (PROGRAM,)], ids=["model", "program"])
@pytest.mark.parametrize("key", ["aten.silu", aten.silu, aten.silu.default], ids=str)
def test_extra_rule_precedes_the_table(call: Any, key: Any) -> None:
    found = operators(*call, extra={key: silu}, output_type="linalg")
    assert "aten.exp.default" in found
    assert "aten.sigmoid.default" not in found


def test_overload_rule_precedes_packet_rule() -> None:
    for extra in ({"aten.silu": torch.neg, aten.silu.default: silu}, {aten.silu.default: silu, "aten.silu": torch.neg}):
        assert "aten.exp.default" in operators(PROGRAM, extra=extra)


def test_rule_for_a_composite_with_a_kernel_is_applied() -> None:
    """torch.export runs the kernel of a composite operator that has one, whatever the table says."""

    class Backward(torch.nn.Module):
        def forward(self, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return aten.silu_backward(grad, x)

    program = torch.export.export(Backward(), (X, X))
    assert "aten.silu_backward.default" not in operators(program)
    assert operators(program, keep=["aten.silu_backward"]) == {"aten.silu_backward.default"}
    found = operators(program, extra={"aten.silu_backward": lambda grad, x: grad * torch.cos(x)})
    assert found == {"aten.cos.default", "aten.mul.Tensor"}


def test_overrides_apply_to_a_given_table() -> None:
    table = {aten.linear: F.linear, aten.silu: torch.neg}
    found = operators(PROGRAM, decomposition_table=table, keep=[aten.linear], extra={aten.silu.default: silu})
    assert found == {
        "aten.linear.default",
        "aten.neg.default",
        "aten.exp.default",
        "aten.add.Tensor",
        "aten.div.Tensor",
    }


@pytest.mark.parametrize("keep", ["aten.hardswish_", "aten.hardswish_.default", aten.hardswish_])
def test_in_place_operator_is_kept_in_its_functional_form(keep: Any) -> None:
    def in_place(x: torch.Tensor) -> torch.Tensor:
        return F.hardswish(x * 2, inplace=True)

    assert "aten.hardswish.default" in operators(in_place, X, keep=[keep])


def test_keep_of_an_operator_without_a_rule() -> None:
    assert operators(PROGRAM, keep=["aten.convolution"]) == operators(PROGRAM)


def test_results_are_the_same() -> None:
    lowered = lower(Model(), X, output_type="linalg", keep=["aten.linear"], extra={"aten.silu": silu})
    assert lowered.verify(X)
    assert compare_decompositions(PROGRAM, extra={"aten.silu": silu}) is None


def test_bisection_of_a_wrong_rule(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FX_IMPORTER_DUMP_DIR", str(tmp_path))
    found = compare_decompositions(PROGRAM, keep=["aten.linear"], extra={"aten.silu": torch.neg})
    assert found is not None
    assert found.script is not None
    text = found.script.read_text()
    assert "keep=('aten.linear',)" in text
    assert "extra={'aten.silu': torch.neg}" in text


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"keep": ["aten.liner"]}, r"keep: no operator is named 'aten\.liner'; is it aten\.linear"),
        ({"keep": ["gelu"]}, r"keep: no operator is named 'gelu'; is it aten\.gelu"),
        ({"keep": ["aten.relu.out2"]}, r"no operator is named 'aten\.relu\.out2'; the overloads of aten\.relu are "),
        ({"keep": ["nothing.like.it"]}, r"no operator is named 'nothing\.like\.it'$"),
        ({"keep": ["aten.add.out"]}, r"keep: aten\.add\.out writes to its arguments, and has no functional form"),
        (
            {"extra": {"aten.silu_": silu}},
            r"extra: aten\.silu_ writes to its arguments, .* give the rule of aten\.silu\.default, which it becomes",
        ),
        ({"keep": "aten.linear"}, r"keep is a list of operators: keep=\['aten\.linear'\]"),
        ({"extra": {"aten.silu": 3}}, r"extra: the decomposition of aten\.silu is not a function but 3"),
        ({"extra": {3: silu}}, r"extra: no operator is named 3"),
        (
            {"keep": ["aten.silu"], "extra": {aten.silu.default: silu}},
            r"aten\.silu\.default: named in keep and in extra; an operator is kept or decomposed, not both",
        ),
        ({"keep": ["aten.a_b"], "extra": {"aten.silu": 3}}, r"(?s)no operator is named 'aten.a_b'.*not a function"),
    ],
    ids=["name", "namespace", "overload", "unlike", "out", "in place", "string", "value", "key", "both", "all"],
)
def test_invalid_overrides(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        export_and_import(PROGRAM, **options)
