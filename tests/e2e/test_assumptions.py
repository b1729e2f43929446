"""Programs captured under assumptions: results as in eager, and an error for inputs that answer otherwise."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fx_importer import ExportError, UsageError, explain, load, lower
from fx_importer.calls.caller import Caller
from fx_importer.errors import AssumptionError, AssumptionWarning
from fx_importer.manifest import Manifest
from tests.e2e import assumption_programs as programs

PROGRAMS, ONES, MINUS = programs.PROGRAMS, programs.ONES, programs.MINUS

ENGINES = {
    "xla": ("stablehlo", "xla"),
    "stablehlo": ("stablehlo", "stablehlo"),
    "stablehlo_jit": ("stablehlo", "jit"),
    "stablehlo_iree": ("stablehlo", "iree"),
    "tosa_reference": ("tosa", "tosa_reference"),
    "tosa_iree": ("tosa", "iree"),
    "linalg_iree": ("linalg-on-tensors", "iree"),
    "torch_iree": ("torch", "iree"),
}


NOT_ON_IREE = {
    *(("sorted", "linalg_iree"), ("distinct", "linalg_iree")),  # it does not run sorts of linalg
    # it fails to legalize a torch.constant.int (of nonzero_static)
    *((name, "torch_iree") for name in ("mask_and_numbers", "positions", "tolist", "where")),
    *((name, "torch_iree") for name in ("halves", "selected", "length")),  # its lowering of masks compares i32 with i64
    ("pairs", "torch_iree"),  # it takes 12 GB, and minutes, to compile it
}


def assert_flip_is_caught(name: str, output_type: str, engine: str) -> None:
    f, inputs, flipped = PROGRAMS[name]
    lowered = lower(f, *inputs, output_type=output_type, capture="assume", narrow_integers=output_type == "tosa")
    caller = lowered.caller(backend=engine)
    torch.testing.assert_close(caller(*inputs), f(*inputs), equal_nan=True)
    with pytest.raises(AssumptionError, match=r"^'main' assumes that `.*` is .*, at .*assumption_programs.py:\d+"):
        caller(*flipped)


@pytest.fixture(autouse=True)
def argument_checks() -> Iterator[None]:
    """Distributions check their arguments, which TorchDynamo turns off for the process once it has traced."""
    torch.distributions.Distribution.set_default_validate_args(True)
    yield
    # strict=True is one of the ways that are tried
    assert torch.distributions.Normal(0.0, 1.0)._validate_args


@pytest.mark.slow_rows(
    "^(sum_the_other_way|number_below|number_of_bfloat16|nan_in_the_example|two_numbers|min|next)$",
    "^(list|int8|bool|int|bits|equal|where|in|sorted|tolist)$",
    "^(number_of_selected|distinct_rows|repeated|halves|pairs|nan_for_a_number|is_nonzero|two_tensors)$",
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_flips_are_caught_by_the_jit(name: str) -> None:
    assert_flip_is_caught(name, "linalg-on-tensors", "jit")


@pytest.mark.slow_rows(unless="^(sum-(xla|tosa_reference|linalg_iree)|int-xla)$")
@pytest.mark.parametrize(
    ("name", "engine"),
    [row for row in itertools.product(PROGRAMS, ENGINES) if row not in NOT_ON_IREE],
)
def test_flips_are_caught_by_all_engines(name: str, engine: str) -> None:
    assert_flip_is_caught(name, *ENGINES[engine])


@pytest.mark.parametrize("name", ["distinct", "distinct_rows", "runs", "bins", "repeated"])
def test_sizes_of_results_are_counted_in_stablehlo(name: str) -> None:
    assert_flip_is_caught(name, "stablehlo", "jit")


@pytest.mark.parametrize(("output_type", "engine"), [("stablehlo", "jit"), ("tosa", "tosa_reference")])
@pytest.mark.parametrize(
    ("program", "n", "same", "flipped"),
    [
        (programs.divided_rows, (1, 2), (1, 2), (2, 1)),
        (programs.counted, (0, 2, 2), (2, 1, 2), (0, 1, 1)),
    ],
    ids=["split", "bincount"],
)
def test_numbers_that_are_sizes_are_assumed_without_dynamic_sizes(
    program: Any, n: Any, same: Any, flipped: Any, output_type: str, engine: str
) -> None:
    x, n, same, flipped = programs.RISING, *(programs.whole(*numbers) for numbers in (n, same, flipped))
    lowered = lower(program, x, n, output_type=output_type, capture="assume")
    assert lowered.manifest.functions["main"].assumptions
    caller = lowered.caller(backend=engine)
    torch.testing.assert_close(caller(x, same), program(x, same))
    with pytest.raises(AssumptionError, match="n.tolist|torch.bincount"):
        caller(x, flipped)
    linalg = lower(program, x, n, output_type=LINALG, capture="assume").caller()
    torch.testing.assert_close(linalg(x, flipped), program(x, flipped))


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_sizes_that_the_program_works_for_are_assumed(output_type: str) -> None:
    def decided(n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return n[n > 0] + torch.arange(2), torch.bincount(n, minlength=2).reshape(3), n.unique().reshape(1, 2)

    lowered = lower(decided, programs.whole(1, 2), output_type=output_type, capture="export")
    caller = lowered.caller(backend="jit")
    torch.testing.assert_close(caller(programs.whole(2, 1)), decided(programs.whole(2, 1)))
    with pytest.raises(AssumptionError, match="`size 0 of aten.index.Tensor, in return .*` is 2, at "):
        caller(programs.whole(0, 2))  # one element, which eager repeats
    with pytest.raises(AssumptionError, match="bincount"):
        caller(programs.whole(1, 3))
    branching = lower(
        lambda n: decided(n if n.sum() > 0 else -n), programs.whole(1, 2), output_type=output_type, capture="assume"
    )
    with pytest.raises(AssumptionError, match="`size 0 of aten.index.Tensor, in return .*` is 2, at "):
        branching(programs.whole(0, 2))


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_sizes_of_slices_at_items_are_assumed(output_type: str) -> None:
    """As in ``position_ids[:, past : past + steps]`` of decoders: the program works where the slice is not cut off."""

    def sliced(x: torch.Tensor, past: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        first = past.item()
        return x[:, first : first + steps.shape[1]].reshape(1, 2) + steps

    x, steps = torch.arange(8.0)[None], torch.ones(1, 2)
    lowered = lower(sliced, x, torch.tensor(3), steps, output_type=output_type, capture="assume")
    caller = lowered.caller(backend="jit")
    for past in (0, 5, 6, -3):
        torch.testing.assert_close(caller(x, torch.tensor(past), steps), sliced(x, torch.tensor(past), steps))
    for past in (7, 9, -2):
        with pytest.raises(AssumptionError, match="`size 1 of aten.slice.Tensor, in return .*` is 2, at "):
            caller(x, torch.tensor(past), steps)


@torch.library.custom_op("assumed::positive", mutates_args=())
def positive(n: torch.Tensor) -> torch.Tensor:
    return n[n > 0].clone()


@positive.register_fake
def _(n: torch.Tensor) -> torch.Tensor:
    return n.new_empty(torch.library.get_ctx().new_dynamic_size())


def test_sizes_that_no_rule_counts_are_refused() -> None:
    with pytest.raises(ExportError, match=r"`len\(positive\(x\)\)` is 3, .*: this size depends on values, and no rule"):
        lower(lambda x: x * 2 if len(positive(x)) == 3 else x, ONES, capture="assume")


def test_verify_raises_for_other_inputs() -> None:
    lowered = lower(programs.sum_is_positive, ONES, capture="assume", output_type="stablehlo")
    assert lowered.verify(ONES, backends=["jit"])
    with pytest.raises(AssumptionError, match="it is False for these inputs"):
        lowered.verify(MINUS, backends=["jit"])


def test_auto_warns_with_a_line_for_each_assumption() -> None:
    with pytest.warns(AssumptionWarning, match="under 2 assumptions") as caught:
        lowered = lower(programs.two_questions, ONES)
    _, first, second, _ = str(caught[0].message).splitlines()
    assert first.startswith("  `x.sum() > 0` is True, at ")
    assert second.startswith("  `x[0] < 5` is True, at ")
    assert [first.strip(), second.strip()] == list(lowered.manifest.functions["main"].assumptions)


def test_export_refuses_what_auto_assumes() -> None:
    with pytest.raises(ExportError, match="data-dependent"):
        lower(programs.sum_is_positive, ONES, capture="export")


LINALG = "linalg-on-tensors"


def test_message_of_a_branch_that_raises() -> None:
    lowered = lower(programs.raises, ONES, output_type=LINALG, capture="assume")
    with pytest.raises(AssumptionError, match=r"otherwise the model raises ValueError\('negative input'\)"):
        lowered(MINUS)


def test_programs_without_branches_are_the_same_module() -> None:
    model = torch.nn.Linear(2, 2).eval()
    texts = [str(lower(model, torch.ones(1, 2), capture=each).module) for each in ("export", "assume", "auto")]
    assert texts[0] == texts[1] == texts[2]
    assert "assert" not in texts[0]


class Initialized(torch.nn.Module):
    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("initted", torch.tensor(True))
        self.register_buffer("mean", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.mean if self.initted else x


def test_constant_buffers_that_decide_are_frozen_without_a_warning() -> None:
    lowered = lower(Initialized(), ONES, output_type=LINALG)
    function = lowered.manifest.functions["main"]
    assert (function.assumptions, function.frozen) == ((), ("initted",))
    assert "cf.assert" not in str(lowered.module)
    torch.testing.assert_close(lowered(3 * ONES), 2 * ONES)


def test_buffers_outside_of_the_module_are_checked() -> None:
    lowered = lower(Initialized(), ONES, output_type=LINALG, weights="args", capture="assume")
    assert "`self.initted` is True" in lowered.manifest.functions["main"].assumptions[0]
    torch.testing.assert_close(lowered(3 * ONES), 2 * ONES)
    state = {"initted": torch.tensor(False), "mean": ONES}
    with pytest.raises(AssumptionError):
        lowered.caller(state)(ONES)


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo"])
def test_mutated_buffers_are_checked_before_state_changes(output_type: str) -> None:
    lowered = lower(programs.Counts(), ONES, mutation="functional", capture="assume", output_type=output_type)
    caller = lowered.caller(backend="jit")
    torch.testing.assert_close(caller(ONES), 2 * ONES)
    assert caller.state["calls"].item() == 1
    with pytest.raises(AssumptionError, match="`self.calls < 1` is True"):
        caller(ONES)
    assert caller.state["calls"].item() == 1


def test_manifests_in_json_keep_assumptions() -> None:
    manifest = lower(programs.sum_is_positive, ONES, output_type="tosa", capture="assume").manifest
    function = Manifest.from_json(manifest.to_json()).functions["main"]
    assert function.assumptions == manifest.functions["main"].assumptions != ()
    assert [each.kind for each in function.results] == ["output", "check"]


def test_callers_of_other_runtimes_read_the_check() -> None:
    manifest = lower(programs.sum_is_positive, ONES, output_type="tosa", capture="assume").manifest
    results: list[Any] = [ONES, torch.tensor(False)]
    caller = Caller(manifest, {"main": lambda x: tuple(results)})
    with pytest.raises(AssumptionError):
        caller(ONES)
    results[1] = torch.tensor(True)
    assert caller(ONES) is ONES


def test_dynamic_sizes() -> None:
    lowered = lower(programs.sum_is_positive, ONES, dynamic_shapes=({0: "n"},), output_type=LINALG, capture="assume")
    torch.testing.assert_close(lowered(torch.ones(7)), 2 * torch.ones(7))
    with pytest.raises(AssumptionError):
        lowered(-torch.ones(7))


def test_unknown_names_are_errors() -> None:
    with pytest.raises(UsageError, match="accepted are 'export', 'assume', 'auto'"):
        lower(programs.sum_is_positive, ONES, capture="guess")


class Converted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer.to(x.dtype)(x) + self.layer.half().float()(x)


def test_modules_that_the_model_converts() -> None:
    model = Converted().eval()
    before = dict(model.named_parameters())
    lowered = lower(model, ONES, output_type=LINALG)
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
    assert lowered.manifest.functions["main"].assumptions == ()
    torch.testing.assert_close(lowered(ONES), model(ONES))


def test_questions_of_torchs_own_modules_name_the_check() -> None:
    lowered = lower(programs.checked_by_torch, ONES, ONES, output_type="torch", capture="assume")
    text = lowered.manifest.functions["main"].assumptions[0]
    assert re.match(r"`.*valid.*, in torch.distributions.Normal\(x, scale\)` is True, at .*raises ValueError", text), (
        text
    )


def test_explain_lists_assumptions_without_a_warning() -> None:
    found = explain(programs.sum_is_positive, ONES, output_types=["tosa"])
    first, second, *_ = str(found).splitlines()
    assert (first, second.strip()) == ("captured under 1 assumption:", found.assumptions[0])
    assert found.to_dict()["assumptions"] == list(found.assumptions)


class Weighed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([2.0, 3.0, 4.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = (x * self.weight).sum()
        if total.item() < 8.5 or total.item() > 9.5:
            raise ValueError("not 9")
        return x * self.weight


def test_answers_depend_on_the_values_of_parameters() -> None:
    lowered = lower(Weighed(), ONES, output_type="torch", capture="assume")
    assert [each.split(",")[0] for each in lowered.manifest.functions["main"].assumptions] == [
        "`total.item() < 8.5` is False",
        "`total.item() > 9.5` is False",
    ]


def test_numbers_are_assumed_where_the_output_type_has_no_dynamic_sizes() -> None:
    inputs = (ONES, programs.whole(1, 2))
    with pytest.warns(AssumptionWarning, match=r"`int\(n.max\(\)\)` is 2"):
        lowered = lower(programs.integer, *inputs, output_type="stablehlo")
    caller = lowered.caller(backend="jit")
    torch.testing.assert_close(caller(*inputs), programs.integer(*inputs))
    with pytest.raises(AssumptionError, match="it is not for these inputs"):
        caller(ONES, programs.whole(1, 3))
    dynamic = lower(programs.integer, *inputs, output_type=LINALG)
    assert dynamic.manifest.functions["main"].assumptions == ()
    torch.testing.assert_close(dynamic(ONES, programs.whole(1, 3)), programs.integer(ONES, programs.whole(1, 3)))


def test_loaded_modules_and_programs_keep_the_checks(tmp_path: Path) -> None:
    lowered = lower(programs.sum_is_positive, ONES, output_type=LINALG, capture="assume")
    lowered.save(tmp_path / "model.mlirbc")
    with pytest.raises(AssumptionError):
        load(tmp_path / "model.mlirbc")(MINUS)
    again = lower(lowered.exported_program, ONES, output_type="stablehlo", capture="assume")
    with pytest.raises(AssumptionError):
        again.caller(backend="jit")(MINUS)


def test_outlined_layers_check_their_assumptions() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.isnan().any():
                raise ValueError("nan")
            return self.linear(x)

    model = torch.nn.Sequential(Layer(), Layer(), Layer()).eval()
    x = torch.ones(1, 3)
    for output_type in (LINALG, "stablehlo"):
        lowered = lower(model, x, output_type=output_type, outline_layers=True, capture="assume")
        caller = lowered.caller(backend="jit")
        torch.testing.assert_close(caller(x), model(x))
        with pytest.raises(AssumptionError, match="nan"):
            caller(x * torch.nan)


def test_comparisons_that_are_false_for_nan_hold_for_nan() -> None:
    lowered = lower(programs.number, MINUS, output_type=LINALG, capture="assume")
    torch.testing.assert_close(lowered(programs.NAN), programs.number(programs.NAN), equal_nan=True)


def test_integers_beyond_64_bits_violate_the_assumption() -> None:
    n = programs.scalar(1)
    lowered = lower(programs.large, ONES, n, output_type=LINALG, capture="assume")
    torch.testing.assert_close(lowered(ONES, n), 2 * ONES)
    with pytest.raises(AssumptionError):
        lowered(ONES, n * -50)  # the product is positive in int64


@pytest.mark.slow_rows("stablehlo")
@pytest.mark.parametrize("output_type", [LINALG, "tosa", "stablehlo"])
def test_loops_over_positions_hold_for_as_many_others(output_type: str) -> None:
    x, mask = programs.RISING, programs.RISING > 1
    with pytest.warns(AssumptionWarning):
        lowered = lower(programs.listed_positions, x, mask, output_type=output_type)
    for other in (mask, programs.RISING < 3):
        assert torch.equal(lowered.run(x, other), programs.listed_positions(x, other))


class Cached(torch.nn.Module):
    rows: torch.Tensor
    last: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 3))
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        self.rows[row] = x
        self.last.copy_(x * 3)
        return self.rows.sum() + (x * 2 if x.sum() > 0 else x)


@pytest.mark.parametrize(
    ("output_type", "engine", "mutation"),
    [(LINALG, "jit", "mutable"), (LINALG, "iree", "functional"), ("stablehlo", "xla", "functional")],
)
def test_state_written_before_the_question_is_kept_if_it_fails(output_type: str, engine: str, mutation: str) -> None:
    row = torch.tensor([1])
    lowered = lower(Cached(), ONES, row, output_type=output_type, mutation=mutation, capture="assume")
    caller, model = lowered.caller(backend=engine), Cached()
    for _ in range(2):
        torch.testing.assert_close(caller(ONES, row), model(ONES, row))
        with pytest.raises(AssumptionError):
            caller(MINUS, row + 1)
        assert torch.equal(caller.state["rows"], model.rows)
        assert torch.equal(caller.state["last"], model.last)


@pytest.mark.slow_rows("^(le-0.1|ge--0.3)")
@pytest.mark.parametrize(("relation", "limit"), [("lt", 0.1), ("le", 0.1), ("gt", -0.3), ("ge", -0.3), ("eq", 0.1)])
def test_limits_between_two_values_of_the_dtype(relation: str, limit: float) -> None:
    """TOSA computes in float32: it has no float64 to compare in."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if getattr(operator, relation)(x.item(), limit) else x * 3

    near = torch.tensor(limit)
    lower_value, upper_value = (near.nextafter(torch.tensor(end)) for end in (-torch.inf, torch.inf))
    caller = lower(forward, near, output_type="tosa", capture="assume").caller(backend="tosa_reference")
    answer = getattr(operator, relation)(near.item(), limit)
    for x in (lower_value, near, upper_value):
        if getattr(operator, relation)(x.item(), limit) == answer:
            assert torch.equal(caller(x), forward(x))
        else:
            with pytest.raises(AssumptionError):
                caller(x)


def test_sums_of_narrow_integers_are_asked():
    def model(x, number):
        last = torch.repeat_interleave(number * 2, number).cumsum(0, dtype=torch.int32)[-1]
        return x + 1 if last > 3 else x

    x, number = torch.ones(3), torch.tensor([1, 1])
    lowered = lower(model, x, number, output_type="linalg-on-tensors", capture="assume")
    assert torch.equal(lowered.run(x, number), model(x, number))
    with pytest.raises(AssumptionError, match="last > 3` is True"):
        lowered(x, torch.tensor([1, 0]))


class CausalConvolution(torch.nn.Module):
    """Padding computed of buffers and of the length, as EnCodec's."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv1d(1, 1, 4, stride=2)
        self.recurrent = torch.nn.LSTM(1, 2)
        self.register_buffer("kernel_size", torch.tensor(4))
        self.register_buffer("stride", torch.tensor(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size, stride = self.get_buffer("kernel_size"), self.get_buffer("stride")
        left: Any = size - stride
        windows = torch.ceil((x.shape[-1] - size + left) / stride + 1).long() - 1
        right: Any = windows * stride + size - left - x.shape[-1]
        if x.shape[-1] <= max(left, right):
            raise ValueError("too short")
        x = torch.nn.functional.pad(x, (left, right), mode="reflect")
        return self.recurrent(self.convolution(x).permute(2, 0, 1))[0]


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_padding_that_buffers_decide_is_a_number(output_type: str) -> None:
    model, x = CausalConvolution().eval(), torch.randn(1, 1, 9)
    lowered = lower(model, x, output_type=output_type)
    function = lowered.manifest.functions["main"]
    assert not function.assumptions
    assert set(function.frozen) == {"kernel_size", "stride"}
    torch.testing.assert_close(lowered.run(x), model(x))
