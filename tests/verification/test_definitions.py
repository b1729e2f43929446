"""Statements and expressions that define users' objects again, without this process."""

import functools
import math
from typing import Any

import pytest
import torch

from fx_importer import Lowerings, OutputType, decomposes, external, lowers, pipeline_for
from fx_importer.verification import definitions
from fx_importer.verification.definitions import Definitions, pickled, unpickled
from fx_importer.verification.function_source import NotPythonError

aten = torch.ops.aten
SCALE = 3


@lowers(aten.gelu.default, into="tosa")
def gelu(emit, x, approximate="none"):
    return emit.mul(x, 1.5)


@torch.library.custom_op("definitions_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def double(x):
    return x * 2


class Scaled:
    factor = SCALE

    def __call__(self, x):
        return x * self.factor


SCALED = Scaled()


def again(value: Any, collected: Definitions | None = None) -> Any:
    """Return ``value`` as its definitions make it."""
    collected = collected or Definitions()
    expression = collected.expression(value)
    names: dict[str, Any] = {}
    exec(compile(collected.text, "<again>", "exec"), names)
    return eval(expression, names)


def local(offset):
    other = lambda x: math.floor(x) + offset  # noqa: E731

    def function(x):
        return other(x) * SCALE

    return function


def wrapped(function):
    @functools.wraps(function)
    def wrapper(*args):
        return -function(*args)

    return wrapper


def decorated_locally():
    @functools.cache
    def function(x):
        return x + SCALE

    return function


@pytest.mark.parametrize(
    "function",
    [
        local(4),
        lambda x: math.floor(x) * SCALE,
        functools.partial(local(1)),
        SCALED.__call__,
        wrapped(local(2)),
        decorated_locally(),
    ],
    ids=["closure", "lambda", "partial", "method", "wrapped", "decorated"],
)
def test_local_function(function):
    assert again(function)(2.5) == function(2.5)


def test_imported_objects_are_the_same():
    registry = Lowerings([gelu])
    assert again(gelu) is gelu
    assert again(gelu.rule) is gelu.rule
    assert again(double) is double
    assert again(SCALED) is SCALED
    assert again(torch.abs) is torch.abs
    assert list(again(registry)) == [gelu]


def test_objects_of_the_program_that_runs_are_copied(monkeypatch):
    monkeypatch.setattr(definitions, "_is_importable", lambda module: module != __name__ and module != "__main__")
    copied = again(gelu)
    assert copied.operators == gelu.operators
    assert copied.into == gelu.into
    assert copied.rule is not gelu.rule
    assert again(double)(4) == 8
    assert again(decomposes(aten.sin.default)(double)).rule(4) == 8
    assert again(external(aten.sin.default, symbol="f")).symbol == "f"


def test_custom_operator(monkeypatch):
    collected = Definitions()
    collected.operator(torch.ops.definitions_test.twice.default)
    assert f"import {__name__}" in collected.text
    monkeypatch.setattr(definitions, "_is_importable", lambda module: module != __name__ and module != "__main__")
    collected = Definitions()
    collected.operator(torch.ops.definitions_test.twice.default)
    text = collected.text.replace("definitions_test::", "definitions_test_again::")
    exec(compile(text, "<again>", "exec"), {})
    operator = torch.ops.definitions_test_again.twice.default
    assert torch.equal(operator(torch.ones(2)), torch.full((2,), 2.0))
    assert operator(torch.ones(2, device="meta")).shape == (2,)


def test_operator_of_torch_needs_nothing():
    collected = Definitions()
    collected.operator(aten.add.Tensor)
    collected.operator(torch.ops.quantized.add.default)
    assert (collected.imports, collected.lines) == ([], [])


def test_pipeline_with_passes_and_functions():
    pipeline = pipeline_for("tosa").after("tosa", "cse").after("tosa", lambda module: None, name="mine")
    assert str(again(pipeline)) == str(pipeline)
    assert [each.name for each in again(pipeline).stages] == [each.name for each in pipeline.stages]


def test_output_type_of_the_program_that_runs():
    OutputType.define("again", base="tosa", pipeline=lambda pipeline: pipeline, allows={"tosa", "npu"})
    try:
        collected = Definitions()
        collected.imports.append("from fx_importer import OutputType; OutputType.forget('again')")
        defined = OutputType.get("again")
        object.__setattr__(defined, "where", "<stdin>:1")
        assert again(defined, collected) == "again"
        made = OutputType.get("again")
        assert made is not defined
        assert (made.base, made.allows) == (OutputType.TOSA, frozenset({"tosa", "npu"}))
    finally:
        OutputType.forget("again")


def test_pickle_of_functions_and_operators():
    collected = Definitions()
    data = pickled({"rules": (gelu, double, aten.sin.default), "local": local(3)}, collected)
    found = unpickled(data, collected)
    assert found["rules"] == (gelu, double, aten.sin.default)
    assert found["local"](1.5) == local(3)(1.5)
    assert collected.expression(found["local"]).startswith("made_")  # the child names it as the parent did


def test_object_without_definition():
    with pytest.raises(NotPythonError, match="is of the class 'Scaled', and no module holds it: assign it to a name"):
        Definitions().expression(Scaled())
