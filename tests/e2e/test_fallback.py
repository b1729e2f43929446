"""Fallback: operators that an output type does not support are lowered to another; results agree with eager."""

from __future__ import annotations

import pytest
import torch

from fx_importer import Manifest, NoMatch, StageFailed, UsageError, lower, lowers
from fx_importer.output_types import OutputType
from tests.engines.test_engine_table import needs_tosa

x = torch.linspace(-2, 2, 20).reshape(5, 4)


def wide(x):
    """Bits of float64, which TOSA lacks."""
    y = torch.relu(x) + 1
    return (y.double().view(torch.int64) >> 52).float() * 2, y.cumsum(1)


def parts(x):
    """Slices of dynamic size, which TOSA lacks."""
    y = torch.relu(x) + 1
    return y[1:, ::2] * 2, y.view(-1).exp()


def draws(x):
    """Random numbers, which no output type supports."""
    return torch.ops.aten._standard_gamma(x.abs().double()) * 0 + x


def names_of(module) -> list[str]:
    dialects = {"tosa", "linalg", "stablehlo"}
    return sorted(
        {op.partition(".")[0] for op in str(module).replace('"', " ").split() if op.partition(".")[0] in dialects}
    )


@pytest.mark.parametrize("fallback", ["linalg", "stablehlo"])
def test_function_of_two_dialects(fallback: str):
    lowered = lower(wide, x, output_type="tosa", fallback=fallback)
    assert names_of(lowered.module) == sorted({"tosa", fallback})
    assert str(lowered.module).count("func.func") == 1
    assert lowered.manifest.fallback == (OutputType.get(fallback).value,)
    assert Manifest.from_json(lowered.manifest.to_json()).fallback == lowered.manifest.fallback
    assert lowered.verify(x)
    went = {each.op.partition("(")[0]: each for each in lowered.operator_output_types}
    assert went["aten.view.dtype"].output_type is OutputType.get(fallback)
    assert "nothing lowered" in went["aten.view.dtype"].reason
    assert "test_fallback.py" in str(went["aten.view.dtype"].places[0])
    assert went["aten.cumsum"].output_type is OutputType.TOSA


@needs_tosa
@pytest.mark.parametrize("fallback", ["linalg", "stablehlo"])
def test_dynamic_sizes(fallback: str):
    size = torch.export.Dim("rows", min=3, max=20)
    lowered = lower(parts, x, output_type="tosa", fallback=[fallback], dynamic_shapes=({0: size},))
    assert lowered.verify(torch.cat([x, x]))


def test_supported_program_uses_no_fallback():
    lowered = lower(torch.relu, x, output_type="tosa", fallback="linalg")
    assert names_of(lowered.module) == ["tosa"]
    assert lowered.manifest.fallback == ()
    assert [each.output_type for each in lowered.operator_output_types] == [OutputType.TOSA]


def test_fallbacks_are_tried_in_order():
    lowered = lower(wide, x, output_type="tosa", fallback=["stablehlo", "linalg"])
    assert names_of(lowered.module) == ["stablehlo", "tosa"]


def test_unsupported_in_all_is_an_error_or_a_stub():
    with pytest.raises(StageFailed, match="1 unsupported operator\n  aten._standard_gamma"):
        lower(draws, x, output_type="tosa", fallback="linalg")
    lowered = lower(draws, x, output_type="tosa", fallback="linalg", unsupported="outline")
    assert [stub.operator for stub in lowered.operator_stubs.values()] == ["aten._standard_gamma.default"]
    assert lowered.manifest.fallback == ("linalg-on-tensors",)
    torch.testing.assert_close(lowered.run(x), x.double())


@torch.library.custom_op("fallback::halves", mutates_args=())
def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x / 2, x.sum(1)


@halves.register_fake
def _(x):
    return torch.empty_like(x), x.new_empty(x.shape[0])


@pytest.mark.parametrize("size", [None, torch.export.Dim("rows", min=2, max=20)], ids=["static", "dynamic"])
def test_user_lowering_into_the_fallback(size):
    @lowers(torch.ops.fallback.halves.default, into="linalg")
    def into_linalg(emit, x):
        if len(emit.shape(x)) != 2:
            raise NoMatch("it is for matrices")
        return emit.mul(x, 0.5), emit.sum(x, [1])

    def model(x):
        first, second = halves(torch.relu(x))
        return first + 1, halves(first)[1] * second

    shapes = None if size is None else ({0: size},)
    lowered = lower(model, x, output_type="tosa", fallback="linalg", lowerings=into_linalg, dynamic_shapes=shapes)
    assert names_of(lowered.module) == ["linalg", "tosa"]
    assert str(lowered.module).count("func.func") == 1
    assert lowered.verify(x if size is None else torch.cat([x, x]))
    lowered_to_linalg = [(each.op, each.count) for each in lowered.operator_output_types if each.reason]
    assert lowered_to_linalg == [("fallback.halves.default", 2)]
    deep = torch.ones(2, 3, 4)
    with pytest.raises(StageFailed, match="it is for matrices"):
        lower(lambda x: halves(x)[0], deep, output_type="tosa", fallback="linalg", lowerings=into_linalg)


@pytest.mark.parametrize(
    "output_type, fallback, expected",
    [
        ("torch", "linalg", "parts of a module can be of linalg-on-tensors, tosa, stablehlo, and not of torch"),
        ("tosa", "raw", "and not of raw"),
        ("tosa", "tosa", "tosa is what is asked for, and cannot be its own fallback"),
        ("tosa", "nothing", "unknown output type 'nothing'"),
    ],
)
def test_invalid_fallbacks(output_type: str, fallback: str, expected: str):
    with pytest.raises(UsageError, match=expected):
        lower(wide, x, output_type=output_type, fallback=fallback)
