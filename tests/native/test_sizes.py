"""Sizes, names and targets of native code."""

import platform

import pytest

from fx_importer import UsageError
from fx_importer.native.abi import identifier
from fx_importer.native.sizes import in_c
from fx_importer.native.targets import PRESETS, target_named


@pytest.mark.parametrize(
    "expression, expected",
    [
        (3, "3"),
        ("2*s0 + 1", "((2 * n) + 1)"),
        ("s0 % 4 == 0", "(fx_mod(n, 4) == 0)"),
        ("s0 // 2", "fx_floor_div(n, 2)"),
        ("max(1, s0, 7)", "fx_max(fx_max(1, n), 7)"),
        ("s0 != 1 and s0 < 9", "((n != 1) && (n < 9))"),
    ],
)
def test_sizes_are_spelled_in_c(expression, expected):
    assert in_c(expression, {"s0": "n"}) == expected


def test_sizes_with_floats_are_refused():
    with pytest.raises(UsageError, match="math.floor"):
        in_c("math.floor(s0 / 2)", {"s0": "n"})


@pytest.mark.parametrize("text, name", [("x", "x"), ("args[0]['mask']", "args_0_mask"), ("2d", "_2d"), ("int", "int_")])
def test_names_are_identifiers(text, name):
    assert identifier(text) == name
    assert identifier(text, [name]) == f"{name}_2"


def test_default_target_is_a_baseline():
    default = target_named(None)
    assert default.name in PRESETS
    if platform.machine() == "x86_64":
        assert default.name == "x86-64-v2"
        assert target_named("host").cpu == "native"


def test_triples_take_cpus_and_features():
    target = target_named("aarch64-linux-musl:cortex_a72+crypto")
    assert (target.triple, target.cpu, target.processor.lanes) == ("aarch64-linux-musl", "cortex_a72+crypto", 4)
