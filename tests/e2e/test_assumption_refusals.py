"""Questions that the capture under assumptions refuses, and what it leaves as it was."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from fx_importer import ExportError, lower
from fx_importer.errors import AssumptionError
from tests.e2e import assumption_programs as programs

ONES, LINALG = programs.ONES, "linalg-on-tensors"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (programs.in_a_body, "a body of control flow .* branches on the value of a tensor"),
        (programs.loop_in_a_body, "cannot be captured: a body of control flow .*\n.*fails too"),
        (programs.after_a_body, "under assumptions .* fails too, .*data-dependent"),
    ],
    ids=["in", "loop_in", "after"],
)
def test_questions_in_and_after_control_flow_are_refused(program: Any, reason: str) -> None:
    with pytest.raises(ExportError, match=reason):
        lower(program, ONES, programs.scalar(3), output_type="torch", capture="assume")


@pytest.mark.parametrize(
    ("program", "inputs", "reason"),
    [
        (programs.rounded, (ONES, programs.scalar(4.2)), "no such number at run time for `round"),
        (programs.is_nan, (programs.NAN,), "reads a number that is nan for the example inputs"),
    ],
    ids=["round", "nan"],
)
def test_numbers_that_torch_cannot_check_are_refused(program: Any, inputs: Any, reason: str) -> None:
    with pytest.raises(ExportError, match=reason):
        lower(program, *inputs, output_type="torch", capture="assume")


def test_numbers_compared_with_dynamic_sizes() -> None:
    inputs = (ONES, programs.scalar(5))
    shapes = ({0: torch.export.Dim("n")}, None)
    lowered = lower(programs.number_and_size, *inputs, dynamic_shapes=shapes, output_type=LINALG, capture="assume")
    torch.testing.assert_close(lowered(torch.ones(4), inputs[1]), 2 * torch.ones(4))
    with pytest.raises(AssumptionError):
        lowered(torch.ones(6), inputs[1])


def test_other_errors_are_those_of_export() -> None:
    with pytest.raises(ExportError, match="draft_export") as caught:
        lower(lambda x: x @ torch.ones(4, 4), ONES)
    assert "fails too" not in str(caught.value)


def test_random_numbers_of_the_capture_are_its_own() -> None:
    state = torch.get_rng_state()
    lower(lambda x: x * 2 if torch.rand(()) < 0.5 else x, ONES, output_type="torch", capture="assume")
    assert torch.equal(torch.get_rng_state(), state)


def test_assumptions_that_are_false_for_the_example_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # as if torch had answered with other values than the program computes
    monkeypatch.setattr(torch.ops.aten._assert_async.msg, "_op", _raise_its_message)
    with pytest.raises(ExportError, match=r"cannot check what its capture assumes: `x.sum\(\) > 0` is True"):
        lower(programs.sum_is_positive, ONES, output_type="torch", capture="assume")


def _raise_its_message(condition: torch.Tensor, message: str) -> None:
    raise RuntimeError(message)


@pytest.mark.parametrize("error", [NotImplementedError, TypeError])
def test_a_check_of_assumptions_passes_over_missing_kernels_only(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fail(condition: torch.Tensor, message: str) -> None:
        raise error("Could not run 'aten::_assert_async.msg'")

    monkeypatch.setattr(torch.ops.aten._assert_async.msg, "_op", fail)
    reported = pytest.raises(ExportError, match="fails too, TypeError: Could not run")
    with reported if error is TypeError else nullcontext():
        lower(programs.sum_is_positive, ONES, output_type="torch", capture="assume")


@pytest.mark.filterwarnings("ignore::fx_importer.errors.AssumptionWarning")
@pytest.mark.parametrize(
    ("program", "inputs", "others"),
    [
        (programs.asserts, (programs.RISING,), (programs.FALLING,)),
        (programs.asserts_a_size, (ONES, programs.whole(1, 2)), (ONES, programs.whole(1, 3))),
    ],
    ids=["tensor", "number"],
)
def test_the_other_strict_drops_no_assert(program: Any, inputs: Any, others: Any) -> None:
    lowered = lower(program, *inputs, output_type=LINALG)
    torch.testing.assert_close(lowered(*inputs), program(*inputs))
    with pytest.raises(AssumptionError):
        lowered(*others)


def test_the_reason_of_assumptions_precedes_that_of_torch() -> None:
    with pytest.raises(ExportError, match="cannot be captured: the program cannot check .*\n.*fails too, Guard"):
        lower(programs.rounded, ONES, programs.scalar(4.2), output_type="torch")
