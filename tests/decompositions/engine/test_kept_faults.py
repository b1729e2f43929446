"""Kept operators whose C++ lowering differs from eager: corrected, refused or warned of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fx_importer import lower
from fx_importer.decompositions.engine.kept.fault_table import Severity, faults_of, operators_with_faults
from fx_importer.errors import FxImporterError, KeptOperatorError, KeptOperatorWarning, UsageError
from fx_importer.output_types import OutputType
from fx_importer.targets import target_for

X = torch.arange(12.0).reshape(4, 3) - 5
LOWERED = ("linalg-on-tensors", "tosa", "stablehlo")


INTEGERS = torch.arange(12).reshape(4, 3) - 5
INDICES = torch.tensor([-1, 0])


class Rows(torch.nn.Module):
    """A cache that is written at a counter, also in place, and through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Buffer(torch.zeros(4, 3))
        self.place = torch.nn.Buffer(torch.tensor([-1]))

    def forward(self, x: Tensor) -> Tensor:
        self.rows.index_put_((self.place,), x[0:1])
        self.rows[:, 1].remainder_(3.0)
        self.place.sub_(1).remainder_(4)
        return F.hardswish(self.rows, inplace=False) + x


@pytest.mark.parametrize(
    "keep, function, inputs",
    [
        ("aten.index.Tensor", lambda x, i: x[i], (X, INDICES)),
        ("aten.index_put", lambda x, i: x.index_put((i,), torch.tensor(7.0)), (X, INDICES)),
        ("aten.remainder", lambda x: torch.remainder(x, 3.0), (X,)),
        ("aten.remainder", lambda x: torch.remainder(x, -3), (INTEGERS,)),
        ("aten.remainder", lambda x: torch.remainder(x.to(torch.int8), x.flip(0).clamp(max=-1)), (INTEGERS,)),
    ],
    ids=["index", "index_put", "remainder", "of integers", "of int8 and int64"],
)
def test_results_are_corrected(keep: str, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
    lowered = lower(function, *inputs, output_type="stablehlo", keep=[keep])
    assert torch.equal(lowered.run(*inputs), function(*inputs))
    assert any(str(node.target).startswith(keep) for node in lowered.program.graph.nodes)


def test_instance_norm_has_weights() -> None:
    x = X.reshape(1, 4, 3).half() * 1000
    lowered = lower(F.instance_norm, x, output_type="stablehlo", keep=["aten.instance_norm.default"])
    assert any("instance_norm" in str(node.target) for node in lowered.program.graph.nodes)
    torch.testing.assert_close(lowered.run(x), F.instance_norm(x))


def test_half_precision_computes_in_float32() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        scaled = torch.addmm(x, x, x, alpha=0.001), torch.baddbmm(x[None], x[None], x[None], alpha=0.001)[0]
        factors = x / 1e5 * torch.tensor(1e5), x * 1e-7 * torch.tensor(1e6)
        return *scaled, x.std(1), F.layer_norm(x, [2]), F.mse_loss(x, x / 4), *factors

    x = torch.tensor([[300.0, 250.0], [200.0, 280.0]]).half()
    keep = [f"aten.{name}" for name in ("addmm", "baddbmm", "std", "layer_norm", "mse_loss", "div", "mul")]
    lowered = lower(function, x, output_type="linalg-on-tensors", keep=keep)
    torch.testing.assert_close(lowered.run(x), function(x))
    kept = {str(node.target).split(".")[1] for node in lowered.program.graph.nodes if node.op == "call_function"}
    assert {"addmm", "baddbmm", "std", "layer_norm", "mse_loss"} <= kept


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x.index_put((i,), x[:2] * 10),
        lambda x, i: torch.ops.aten.index_put(x, [None, i], x[:, :2] * 10),
        lambda x, i: x.index_put((i, i), x[0, :2]),
    ],
    ids=["rows", "columns", "elements"],
)
def test_rows_of_tosa(function: Callable[..., Any]) -> None:
    with pytest.warns(KeptOperatorWarning, match="repeated indices are not valid"):
        lowered = lower(function, X, INDICES, output_type="tosa", keep=["aten.index_put"])
    assert torch.equal(lowered.run(X, INDICES), function(X, INDICES))


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo"])
@pytest.mark.parametrize("suffix", ["", "_"], ids=["functional", "in place"])
def test_state_over_several_calls(output_type: str, suffix: str) -> None:
    keep = [f"aten.{name}{suffix}" for name in ("index_put", "remainder", "hardswish")]
    lowered, model = lower(Rows(), X, output_type=output_type, keep=keep, mutation="functional"), Rows()
    for factor in (1, 2, 3):
        torch.testing.assert_close(lowered.run(X * factor), model(X * factor))
    kept = {str(node.target).split(".")[1] for node in lowered.program.graph.nodes if node.op == "call_function"}
    assert {"index_put", "remainder", "hardswish"} <= kept


def test_dynamic_sizes_are_corrected() -> None:
    def function(x: Tensor, i: Tensor) -> Tensor:
        return x.index_put((i,), torch.tensor(7.0)) % 3

    size = torch.export.Dim("size", min=2)
    lowered = lower(
        function,
        X,
        INDICES,
        output_type="stablehlo",
        dynamic_shapes=({0: size}, None),
        keep=["aten.index_put", "aten.remainder"],
    )
    for x in (X, torch.cat([X, X])):
        assert torch.equal(lowered.run(x, INDICES), function(x, INDICES))


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo"])
def test_kept_writes_at_masks_may_write_nothing(output_type: str) -> None:
    def function(x: Tensor, rows: Tensor) -> Tensor:
        return x.index_put((rows,), torch.tensor(7.0)).index_put((rows,), torch.ones(3), accumulate=True)

    rows = X[:, 0] > 0
    lowered = lower(function, X, rows, output_type=output_type, keep=["aten.index_put"])
    assert any("index_put" in str(node.target) for node in lowered.program.graph.nodes)
    for mask in (rows, rows & False, rows | True):
        assert torch.equal(lowered.run(X, mask), function(X, mask))


def test_kept_writes_at_masks_are_refused_in_tosa() -> None:
    with pytest.raises(KeptOperatorError, match="repeated indices are not valid"):
        lower(lambda x: x.index_put((x > 0,), torch.tensor(7.0)), X, output_type="tosa", keep=["aten.index_put"])


def test_difference_is_warned_of() -> None:
    with pytest.warns(KeptOperatorWarning, match=r"keep= leaves aten\.prod\.default .*, off by"):
        lowered = lower(torch.prod, X, output_type="linalg-on-tensors", keep=["aten.prod.default"])
    assert any("prod" in remark for stage in lowered.trace.stages for remark in stage.remarks)


def test_wrong_call_is_refused() -> None:
    def sums(x: Tensor) -> Tensor:
        return torch.logcumsumexp(x, 1)

    with pytest.raises(KeptOperatorError, match=r"(?s)aten\.logcumsumexp\.default.*test_kept_faults") as raised:
        lower(sums, X.half(), output_type="stablehlo", keep=["aten.logcumsumexp"])
    assert raised.value.operator == "aten.logcumsumexp.default"


def test_torch_mlirs_option_warns() -> None:
    with pytest.warns(KeptOperatorWarning, match="backend_legal_ops= leaves aten.prod.default"):
        lower(torch.prod, X, output_type="linalg-on-tensors", backend_legal_ops=["aten.prod"])


def test_mask_is_no_index() -> None:
    with pytest.raises(FxImporterError, match=r"aten\.index"):
        lower(lambda x: x[x[:, 0] > 0], X, output_type="linalg-on-tensors", keep=["aten.index.Tensor"])


@pytest.mark.parametrize("output_type", ["tosa", "stablehlo"])
def test_reads_at_masks_that_are_rewritten_before_need_no_kept_index(output_type: str) -> None:
    model = lambda x: (x[x[:, 0] > 0].sum(0), x[x[:, 0] > 0])  # noqa: E731
    lowered = lower(model, X, output_type=output_type, keep=["aten.index.Tensor"])
    torch.testing.assert_close(lowered.run(-X), model(-X), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lowered.run(X), model(X), rtol=1e-5, atol=1e-5)


def test_extra_rule_that_declines_leaves_our_own() -> None:
    extra = {"aten.gelu": lambda x, approximate="none": NotImplemented}
    lowered = lower(torch.nn.GELU("tanh"), X, output_type="linalg-on-tensors", extra=extra)
    assert torch.allclose(lowered.run(X), F.gelu(X, approximate="tanh"), 1e-6, 1e-6)


def test_extra_rule_may_call_its_own_operator() -> None:
    extra = {"aten.index.Tensor": lambda x, indices: torch.ops.aten.index.Tensor(x, indices) * 1.0}
    lowered = lower(lambda x, i: x[i], X, INDICES, output_type="stablehlo", extra=extra)
    assert torch.equal(lowered.run(X, INDICES), X[INDICES])


def test_extra_rule_that_writes_to_its_argument() -> None:
    with pytest.raises(
        UsageError, match=r"decomposition of aten\.relu\.default writes to its arguments by aten\.clamp_"
    ):
        lower(lambda x: torch.relu(x) + x, X, extra={"aten.relu": lambda x: x.clamp_(min=0)})


@pytest.mark.slow_rows("stablehlo")
@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo"])
def test_kept_operators_broadcast_operands_of_other_ranks(output_type: str) -> None:
    def function(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        return torch.fmin(a, b), torch.fmax(b, a), torch.bitwise_left_shift(b.long(), c), torch.lerp(a, b, c.float())

    auto = torch.export.Dim.AUTO
    sizes = ({0: auto}, {0: auto, 2: auto}, {0: auto})
    keep = ["aten.fmin", "aten.fmax", "aten.bitwise_left_shift", "aten.lerp"]
    inputs = torch.rand(3) + 1, torch.rand(4, 2, 3), torch.tensor([1, 0, 2])
    lowered = lower(function, *inputs, output_type=output_type, keep=keep, dynamic_shapes=sizes)
    for a, b, c in (inputs, (torch.rand(5), torch.rand(2, 2, 5), torch.tensor([1, 0, 2, 3, 1]))):
        for result, expected in zip(lowered.run(a, b, c), function(a, b, c), strict=True):
            torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("output_type", LOWERED)
def test_table_has_rows(output_type: str) -> None:
    kind = OutputType.get(output_type)
    assert len(operators_with_faults(kind)) > 30
    (row,) = (row for row in faults_of("aten.log_sigmoid.default", kind) if row.conditions == "float32")
    assert row.severity is Severity.INEXACT
    assert "-inf where eager has -100" in row.what


@pytest.mark.parametrize(
    ("operator", "inputs", "differs"),
    [
        (torch.ops.aten.bitwise_left_shift.Tensor, (INTEGERS, INTEGERS), "a shift by less than zero bits"),
        (torch.ops.aten.clamp_min.Tensor, (X > 0, X < 3), "for bool, off by 1"),
        (torch.ops.aten.copysign.Tensor, (X > 0, X), "for bool,float32, off by 2"),
    ],
    ids=["shift", "clamp", "sign"],
)
def test_operators_that_a_table_keeps_are_warned_of(operator: Any, inputs: tuple[Tensor, ...], differs: str) -> None:
    table = target_for(OutputType.LINALG_ON_TENSORS).decompositions.keeping(operator)
    with pytest.warns(KeptOperatorWarning, match=f"decomposition_table= leaves {operator} .*{differs}"):
        lower(lambda *tensors: operator(*tensors), *inputs, output_type="linalg-on-tensors", decomposition_table=table)


def test_maximum_of_bools_is_refused() -> None:
    with pytest.raises(KeptOperatorError, match="for bool, off by 1"):
        lower(lambda x, y: x.clamp_min(y), X > 0, X < 3, output_type="linalg-on-tensors", keep=["aten.clamp_min"])


def test_circular_pad_is_refused() -> None:
    with pytest.raises(KeptOperatorError, match="no circular mode"):
        lower(lambda x: F.pad(x, (1, 1), mode="circular"), X, output_type="tosa", keep=["aten.pad"])


@pytest.mark.parametrize(
    "output_type, function, kept, limit",
    [
        ("tosa", lambda x: x.unfold(0, 2, 1), "aten.unfold", "does not end for a dynamic axis"),
        ("linalg-on-tensors", lambda x: x.repeat(2, 3, 0), "aten.repeat", "has other sizes for no repetitions"),
        ("stablehlo", lambda x: x.roll(5, 0), "aten.roll", "a shift is larger than a dynamic size"),
    ],
    ids=["windows", "no_repetitions", "shifts"],
)
def test_dynamic_axes_are_refused(output_type: str, function: Any, kept: str, limit: str) -> None:
    with pytest.raises(KeptOperatorError, match=limit):
        lower(
            function,
            torch.ones(3, 4),
            output_type=output_type,
            keep=[kept],
            dynamic_shapes=({0: torch.export.Dim.AUTO},),
        )
