"""Random programs agree with eager on every output type, or are refused with an error of the package."""

import importlib.util
from dataclasses import replace

import pytest
import torch

from fx_importer import OutputType
from testing.fuzz import FAILURES, TARGETS, Fuzzer
from testing.fuzzing.defined import is_defined
from testing.fuzzing.draw import NARROW, Settings
from testing.fuzzing.generate import program
from testing.fuzzing.overrides import overrides
from testing.fuzzing.program import named

STATIC = Settings(NARROW, most_calls=3)
KINDS = {
    "static": (STATIC, 4),
    "dynamic": (replace(STATIC, dynamic=True), 2),
    "mutation": (replace(STATIC, mutation=True), 2),
    "training": (Settings(("f32",), most_calls=2, training=True, special=False), 1),
    "quantized": (Settings(("f32",), most_calls=3, quantized=True, special=False), 1),
}
"""Settings, and the number of programs."""
FUZZER = Fuzzer(STATIC, seed=2)
"""Has the worker of all rows, which starts with the first."""


@pytest.mark.in_turn("target")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", TARGETS)
def test_random_programs(target: str, kind: str):
    if target == "tosa" and importlib.util.find_spec("tosa_reference_model") is None:
        pytest.skip("TOSA's reference model is not installed")
    settings, count = KINDS[kind]
    rows = [*replace(FUZZER, settings=settings).rows([target], range(count))]
    failures = [f"{row.index}: {row.kind}: {row.why}\n{row.source}" for row in rows if row.kind in FAILURES]
    assert not failures, "\n".join(failures)
    assert any(row.kind == "agrees" for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_programs_are_reproducible_and_print_as_python(kind: str):
    settings, _ = KINDS[kind]
    source = program(2, 3, settings).source()
    assert source == program(2, 3, settings).source()
    names: dict[str, object] = {}
    exec(source, names)
    model, inputs = names["build"]()  # type: ignore[operator]
    assert len(model(*inputs)) >= 1


def test_targets_are_dotted_names():
    assert named("operator.getitem")([1, 2], 1) == 2


def test_masks_are_sometimes_empty_and_sometimes_full():
    fills = {each.fill for index in range(60) for each in program(5, index, STATIC).inputs if each.dtype is torch.bool}
    assert {"normal", "empty", "full"} <= fills


def test_writes_reach_slices_masks_and_views():
    settings = replace(STATIC, mutation=True, most_calls=8)
    targets = {call.target for index in range(100) for call in program(5, index, settings).calls}
    assert {"testing.fuzzing.program.assigned", "torch.Tensor.unfold", "torch.narrow"} <= targets


def test_dynamic_programs_run_with_sizes_of_zero_and_one():
    sizes = program(5, 0, replace(STATIC, dynamic=True)).other_sizes
    assert set(sizes[-1].values()) <= {0, 1}


@pytest.mark.parametrize("others", [False, True])
def test_writes_to_memory_that_overlaps_are_undefined_unless_it_is_one_number(others: bool):
    x = torch.arange(4.0).unfold(0, 2, 1)
    value = torch.ones(3, 2)
    assert is_defined("torch.Tensor.fill_", (x, 2.0), {})
    assert not is_defined("torch.Tensor.mul_", (x, value if others else 2.0), {})


def test_writes_from_overlapping_memory_are_undefined():
    x = torch.arange(4.0)
    assert not is_defined("torch.Tensor.copy_", (x[1:], x[:-1]), {})
    assert is_defined("torch.Tensor.copy_", (x[2:], x[:2]), {})


def test_overrides_are_of_operators_of_the_program():
    exported = torch.export.export(torch.nn.Hardswish(), (torch.ones(2),))
    drawn = [overrides(exported, OutputType.LINALG_ON_TENSORS, choice) for choice in range(1, 12)]
    assert {each.keep for each in drawn} == {(), ("aten.hardswish.default",)}
    assert any(torch.ops.aten.hardswish.default in each.extra for each in drawn)
