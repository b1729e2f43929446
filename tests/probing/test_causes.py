"""A failed lowering names every unsupported operator, where it is called, and suggestions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable

import pytest
import torch

import fx_importer
from fx_importer.compiler import diagnose
from fx_importer.diagnostics.causes import Cause
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, Stage
from fx_importer.pipelines.python_passes import imported_step
from fx_importer.probing import Prober, causes_in

ENDING = imported_step("tests.pipelines.faults:abort")


@torch.library.custom_op("fx_importer_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Inner(torch.nn.Module):
    def forward(self, x):
        return x.tanh().nonzero()


class Three(torch.nn.Module):
    """Three operators that are unsupported in StableHLO, one of them used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        x = twice(self.linear(x))
        y = torch.ops.aten._standard_gamma(x.sigmoid())
        x = twice(x)
        return self.inner(x), y.tanh()


LINES = {line.strip(): number for number, line in enumerate(inspect.getsource(Three).splitlines())}
START = inspect.getsourcelines(Three)[1]


def line_of(text: str) -> int:
    return START + LINES[text]


def causes_of(model: Callable[..., object], *inputs: torch.Tensor, **options: object) -> dict[str, Cause]:
    with pytest.raises(fx_importer.StageFailed) as raised:
        fx_importer.lower(model, *inputs, **options)  # type: ignore[arg-type]
    for cause in raised.value.causes:
        assert str(cause).splitlines()[0] in str(raised.value)
    return {cause.op: cause for cause in raised.value.causes}


@pytest.fixture(autouse=True)
def reports(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FX_IMPORTER_DUMP_DIR", str(tmp_path))


def test_three_operators_are_named_with_their_lines_and_counts() -> None:
    causes = causes_of(Three(), torch.randn(4, 4), output_type="stablehlo")
    places = {name: [(place.line, place.module) for place in cause.places] for name, cause in causes.items()}
    inner = inspect.getsourcelines(Inner)[1] + 2
    assert places == {
        "fx_importer_tests.twice.default": [
            (line_of("x = twice(self.linear(x))"), None),
            (line_of("x = twice(x)"), None),
        ],
        "aten._standard_gamma.default": [(line_of("y = torch.ops.aten._standard_gamma(x.sigmoid())"), None)],
        "aten.nonzero.default": [(inner, "inner")],
    }


def test_suggestions_were_tried() -> None:
    causes = causes_of(Three(), torch.randn(4, 4), output_type="stablehlo")
    assert any("output_type='linalg-on-tensors'" in each for each in causes["aten.nonzero.default"].suggestions)
    assert any("fallback='linalg-on-tensors'" in each for each in causes["aten.nonzero.default"].suggestions)
    assert not any("static sizes" in each for cause in causes.values() for each in cause.suggestions)
    assert not any("output_type" in each for each in causes["aten._standard_gamma.default"].suggestions)
    assert any(
        "extra={torch.ops.fx_importer_tests.twice.default" in e
        for e in causes["fx_importer_tests.twice.default"].suggestions
    )


def test_suggestion_to_drop_keep() -> None:
    model = torch.nn.Sequential(torch.nn.LogSigmoid())
    causes = causes_of(model, torch.randn(4), output_type="tosa", keep=["aten.log_sigmoid_forward"])
    assert any("without keep=" in each for each in causes["aten.log_sigmoid_forward.default"].suggestions)


def test_operator_is_named_if_mlir_names_a_constant() -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.unfold(0, 2, 1)

    causes = causes_of(Model(), torch.randn(4, 4), output_type="stablehlo", keep=["aten.unfold"])
    (cause,) = causes.values()
    assert cause.call == "aten.unfold.default(f32[4,4], 0, 2, 1) -> f32[3,4,2]"
    assert "constant" not in cause.reason


def test_operator_is_named_if_an_operand_is_computed_from_a_size() -> None:
    def pad_to_four(x):
        return torch.nn.functional.pad(x, (0, -x.shape[1] % 4)) * 2

    sizes = ({1: torch.export.Dim.DYNAMIC},)
    causes = causes_of(pad_to_four, torch.randn(2, 7), output_type="tosa", dynamic_shapes=sizes)
    (cause,) = causes.values()
    assert cause.op == "aten.constant_pad_nd.default"
    assert cause.places[0].source == "return torch.nn.functional.pad(x, (0, -x.shape[1] % 4)) * 2"


def test_data_dependent_size_is_named() -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.nonzero()

    causes = causes_of(Model(), torch.randn(4), output_type="stablehlo")
    assert causes["aten.nonzero.default"].reason.startswith("the result has a data-dependent size")


def test_failure_in_a_branch_names_the_inner_operator() -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: twice(x), lambda x: x.cos(), (x,))

    assert set(causes_of(Model(), torch.randn(4), output_type="linalg")) == {"fx_importer_tests.twice.default"}


def test_report_has_causes_as_table_and_json(tmp_path) -> None:
    with pytest.raises(fx_importer.StageFailed) as raised:
        fx_importer.lower(Three(), torch.randn(4, 4), output_type="stablehlo")
    assert raised.value.report is not None
    facts = json.loads((raised.value.report / "report.json").read_text())
    assert [each["op"] for each in facts["causes"]] == [cause.op for cause in raised.value.causes]
    page = (raised.value.report / "report.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `fx_importer_tests.twice.default("))
    for text in ("x = twice(self.linear(x))", "x = twice(x)"):
        assert f"{__file__}:{line_of(text)}, `{text}`" in row


def test_operator_that_crashes_the_process_is_named() -> None:
    """The stage crashes for one operator; every operator is lowered in its own process."""
    found = causes_in(
        fx_importer.export_and_import(torch.nn.Tanh(), torch.randn(4), output_type="raw").operation,
        OutputType.LINALG_ON_TENSORS,
        Prober(lambda _: Pipeline("ending", (Stage("ending", "", (ENDING,)),))),
    )
    assert [(cause.op, cause.stage, cause.reason) for cause in found] == [
        ("aten.tanh.default", "ending", f"the process was ended by the signal SIGABRT, in {ENDING}")
    ]


def test_error_in_the_search_does_not_hide_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(diagnose, "causes_in", broken)
    with pytest.raises(fx_importer.StageFailed, match="nothing lowered 'torch.aten._standard_gamma'") as raised:
        fx_importer.lower(Three(), torch.randn(4, 4), output_type="stablehlo")
    assert "the unsupported operators could not be determined: KeyError: 'a defect'" in str(raised.value)
    assert raised.value.report is not None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_weights_of_any_dtype_are_no_obstacle_to_the_search(dtype) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(16, 16, dtype=dtype))
            self.small = torch.nn.Parameter(torch.randn(2, dtype=dtype))

        def forward(self, x):
            return twice(self.weight) @ x, twice(self.small)

    found = causes_of(Model(), torch.randn(16, dtype=dtype), output_type="linalg")
    assert list(found) == ["fx_importer_tests.twice.default"]
    (cause,) = found.values()
    assert any(each.startswith("unsupported='outline'") for each in cause.suggestions)


def test_search_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "SEARCH_SECONDS", 0)
    with pytest.raises(fx_importer.StageFailed, match=r"stopped after 0 s, when 0 of \d+ distinct calls") as raised:
        fx_importer.lower(Three(), torch.randn(4, 4), output_type="stablehlo")
    assert raised.value.causes == ()
