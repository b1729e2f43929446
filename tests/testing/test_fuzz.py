"""Random programs agree with eager on every output type, or are refused with an error of the package."""

import importlib.util
from dataclasses import replace

import pytest

from testing.fuzz import FAILURES, TARGETS, Fuzzer
from testing.fuzzing.draw import NARROW, Settings
from testing.fuzzing.generate import program
from testing.fuzzing.program import named

STATIC = Settings(NARROW, most_calls=3)
KINDS = {
    "static": (STATIC, 6),
    "dynamic": (replace(STATIC, dynamic=True), 3),
    "mutation": (replace(STATIC, mutation=True), 3),
    "training": (Settings(("f32",), most_calls=2, training=True, special=False), 2),
}
"""Settings, and the number of programs."""
FUZZER = Fuzzer(STATIC, seed=2)
"""Has the worker of all rows, which starts with the first."""


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
