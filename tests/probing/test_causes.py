"""A failed lowering names every unsupported operator, where it is called, and suggestions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable

import pytest
import torch
from torch.export import Dim

import fx_importer
from fx_importer.compiler import advice, diagnose
from fx_importer.diagnostics.causes import Cause
from fx_importer.options import Options
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, Stage
from fx_importer.pipelines.python_passes import imported_step
from fx_importer.probing import Prober, causes_in

pytestmark = pytest.mark.advice

ENDING = imported_step("tests.pipelines.faults:abort")


@torch.library.custom_op("fx_importer_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Inner(torch.nn.Module):
    def forward(self, x):
        return x.tanh().nonzero().repeat(2, 1)


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


def test_suggestions_are_of_the_whole_program() -> None:
    """linalg lowers only one of the operators, and no decomposition makes a data-dependent size."""
    causes = causes_of(Three(), torch.randn(4, 4), output_type="stablehlo")
    assert {cause.suggestions for cause in causes.values()} == {
        ("unsupported='outline': PyTorch computes these operators, as functions that the module declares",)
    }
    fx_importer.lower(Three(), torch.randn(4, 4), output_type="stablehlo", unsupported="outline")


def mask(x):
    return x[x.sum(-1) > 0].repeat(2, 1)


def pad_to_four(x):
    return torch.nn.functional.pad(x, (0, -x.shape[1] % 4)) * 2


def gamma(x):
    return torch.ops.aten._standard_gamma(x) * 2


DYNAMIC = ({1: torch.export.Dim.DYNAMIC},)
LINALG, BOTH = "output_type='linalg-on-tensors'", "output_type='linalg-on-tensors' or output_type='stablehlo'"
OWN = "a decomposition of your own, extra={torch.ops.%s: function}"
SUGGESTED = {
    "mask": (mask, {}, (f"{LINALG}, which supports it", "unsupported='outline'")),
    "pad": (pad_to_four, {"dynamic_shapes": DYNAMIC}, ("static sizes, without dynamic_shapes", BOTH)),
    "gamma": (gamma, {}, ("unsupported='outline'", OWN % "aten._standard_gamma.default")),
    "keep": (
        torch.nn.LogSigmoid(),
        {"keep": ["aten.log_sigmoid_forward"]},
        ("without keep='aten.log_sigmoid_forward': it has a decomposition", "unsupported='outline'"),
    ),
    "range": (lambda x: x.argmax(1) * 10**9, {"narrow_integers": True}, ("without narrow_integers", BOTH)),
    "table": (torch.special.i0e, {"decomposition_table": {}}, ("without decomposition_table",)),
}
"""Programs that TOSA does not take, with options, and how their first suggestions begin."""


@pytest.mark.parametrize("name", SUGGESTED)
def test_suggestions_were_tried(name: str) -> None:
    f, options, expected = SUGGESTED[name]
    (cause,) = causes_of(f, torch.rand(2, 7), output_type="tosa", **options).values()
    found = cause.suggestions
    assert all(suggestion.startswith(text) for suggestion, text in zip(found, expected, strict=False)), found
    assert len(found) >= len(expected)
    assert name != "range" or not any("of your own" in suggestion for suggestion in found), found


def test_other_dtypes_are_suggested_if_they_lower() -> None:
    class Spectrum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))

        def forward(self, x):
            assert x.dtype != torch.float32 or self.scale.dtype == torch.float32
            return twice(x * self.scale) if x.dtype == torch.float64 else x * self.scale

    causes = causes_of(Spectrum(), torch.ones(4, dtype=torch.float64), output_type="linalg")
    assert causes["fx_importer_tests.twice.default"].suggestions[0] == "float32 instead of float64"


def test_no_suggestion_begins_after_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice.time, "monotonic", lambda: 0.0)
    tried: list[str] = []
    advisor = advice.Advisor(
        {}, Options(), lambda change: bool(tried.append(change.text)), prober=lambda: NotImplemented
    )
    assert advisor.suggestions((), 0.0, dynamic=True) == ()
    assert tried == []


def test_suggestion_after_a_failed_export() -> None:
    targets = torch.tensor([0, 1, 3], dtype=torch.uint8)
    with pytest.raises(fx_importer.errors.ExportError, match=r"try: t.long\(\): int64 instead of torch.uint8"):
        fx_importer.lower(lambda x, t: torch.nn.functional.nll_loss(x, t), torch.randn(3, 4), targets)

    def positions(x):
        return x + torch.logspace(0, 1, x.shape[0])

    with pytest.raises(fx_importer.errors.ExportError, match="try: dynamic_shapes with Dim.STATIC for 'frames'"):
        fx_importer.lower(positions, torch.ones(5), dynamic_shapes=({0: "frames"},))

    shapes = ({0: Dim("h")}, {0: Dim("w")})
    with pytest.raises(fx_importer.errors.ExportError, match=r"always be equal.\n  try: dynamic_shapes with w = h$"):
        fx_importer.lower(lambda x, y: x + y, torch.ones(5), torch.ones(5), dynamic_shapes=shapes)


def test_operator_is_named_if_mlir_names_a_constant() -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.unfold(0, 2, 1)

    causes = causes_of(Model(), torch.randn(4, 4), output_type="stablehlo", keep=["aten.unfold"])
    (cause,) = causes.values()
    assert cause.call == "aten.unfold.default(f32[4,4], 0, 2, 1) -> f32[3,4,2]"
    assert "constant" not in cause.reason


def test_operator_is_named_if_an_operand_is_computed_from_a_size() -> None:
    causes = causes_of(pad_to_four, torch.randn(2, 7), output_type="tosa", dynamic_shapes=DYNAMIC)
    (cause,) = causes.values()
    assert cause.op == "aten.constant_pad_nd.default"
    assert cause.places[0].source == "return torch.nn.functional.pad(x, (0, -x.shape[1] % 4)) * 2"


def test_data_dependent_size_is_named() -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.nonzero().repeat(2, 1)

    causes = causes_of(Model(), torch.randn(4), output_type="stablehlo")
    assert causes["aten.nonzero.default"].reason == "the result has a data-dependent size"


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
