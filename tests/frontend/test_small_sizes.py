"""Sizes of 0 and 1 of dynamic dimensions: refused where a program depends on larger ones, and right elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.export import Dim

from fx_importer import UsageError, load, lower
from fx_importer.frontend.export import export_program
from fx_importer.options import ExportOptions
from fx_importer.symbolic.guards import guard_texts

X = torch.arange(20.0).reshape(4, 5) - 3


def branch(x):
    return x * 2 if x.shape[0] != 1 else x * 3


def mean_of_at_least_one(x):
    return x.sum(0) / max(x.shape[0], 1)


def check_of_two(x):
    torch._check(x.shape[0] >= 2)
    return x + 1


def assertion(x):
    assert x.shape[0] > 0
    return x + 1


def branch_with_equal_results(x):
    if x.shape[0] > 1:
        return x + 1
    return 1 + x


GUARDS = {
    "squeeze": (lambda x: x.squeeze(0), "n != 1"),
    "squeeze_all": (lambda x: x.squeeze() * 2, "n != 1"),
    "branch": (branch, "n != 1"),
    "max": (mean_of_at_least_one, "n >= 1"),
    "check": (check_of_two, "n >= 2"),
    "assertion": (assertion, "n >= 1"),
    "select": (lambda x: x[1], "n >= 2"),
    "slice": (lambda x: x[:2] + 1, "n >= 2"),
    "extremum": (lambda x: x.max(0).values, "n >= 1"),
    "branch_with_equal_results": (branch_with_equal_results, None),
    "elementwise": (lambda x: x.relu() + torch.ones(1, 5), None),
    "softmax": (lambda x: x.softmax(0), None),
    "matmul": (lambda x: x @ x.T, None),
    "join": (lambda x: torch.cat([x, x[1:]]), None),
    "transposed": (lambda x: x.T.contiguous(), None),
    "flat": (lambda x: x.view(-1) * 2, None),
}


@pytest.mark.parametrize("name", GUARDS)
def test_guards_of_small_sizes(name):
    f, expected = GUARDS[name]
    program = export_program(f, (X,), {}, ExportOptions(dynamic_shapes=({0: Dim.DYNAMIC},)))
    guards = {guard: line for guard, line in guard_texts(program).items() if line}
    (symbol,) = program.range_constraints
    assert [*guards] == ([] if expected is None else [expected.replace("n", str(symbol))])
    assert all(f"{Path(__file__).name}:" in line for line in guards.values())


@pytest.mark.parametrize("strict", [False, True], ids=["non-strict", "strict"])
@pytest.mark.parametrize("size", [Dim.DYNAMIC, Dim.AUTO, Dim("n"), "n"], ids=str)
def test_kinds_of_dimensions(size, strict):
    lowered = lower(branch, X, output_type="linalg-on-tensors", dynamic_shapes=({0: size},), strict=strict)
    name = "n" if isinstance(size, str) or getattr(size, "__name__", "") == "n" else r"args\[0\].shape\[0\]"
    line = r"test_small_sizes.py:\d+ \(return x \* 2 if x.shape\[0\] != 1 else x \* 3\) depends on it"
    with pytest.raises(UsageError, match=rf"exported for {name} != 1: .*{line}; but args\[0\].shape\[0\] is 1"):
        lowered(X[:1])
    torch.testing.assert_close(lowered(X[:2]), X[:2] * 2)
    torch.testing.assert_close(lowered(X[:0]), X[:0])


@pytest.mark.parametrize("output_type", ["torch", "tosa", "linalg-on-tensors", "stablehlo"])
def test_every_output_type_checks_and_stores_the_condition(output_type, tmp_path):
    program = torch.export.export(Squeezed(), (X,), dynamic_shapes=({0: Dim.DYNAMIC},))
    lowered = lower(program, output_type=output_type)
    ((guard, line),) = lowered.manifest.functions["main"].guard_lines.items()
    assert guard.endswith(" != 1")
    assert "x.squeeze(0)" in line
    lowered.save(tmp_path / "squeezed.mlir")
    if output_type == "linalg-on-tensors":
        for loaded in (lowered, load(tmp_path / "squeezed.mlir")):
            with pytest.raises(UsageError, match=r"exported for .* != 1: .*x.squeeze\(0\)"):
                loaded.run(X[:1])
            torch.testing.assert_close(loaded.run(X[:3]), X[:3])


class Squeezed(torch.nn.Module):
    def forward(self, x):
        return x.squeeze(0)


def test_upper_bounds_are_conditions_of_small_sizes_too():
    """torch computes a size of 1 for one to four rows; without rows, it is 0."""
    lowered = lower(lambda x: x[::4] * 2, X, output_type="linalg-on-tensors", dynamic_shapes=({0: Dim.DYNAMIC},))
    torch.testing.assert_close(lowered(X[:1]), X[:1] * 2)
    with pytest.raises(UsageError, match=r"// 4\) == 1, but args\[0\].shape\[0\] is 0"):
        lowered(X[:0])


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo"])
def test_slices_before_the_last_row_of_one_row(output_type):
    def slices(x):
        return x[:-1], x[:-1:2], x[: x.shape[0] - 1]

    lowered = lower(slices, X, output_type=output_type, dynamic_shapes=({0: Dim.DYNAMIC},))
    for rows in (1, 3):
        torch.testing.assert_close(lowered(X[:rows]), slices(X[:rows]))


def test_slices_of_known_size_of_unknown_rows():
    """The strides are a constant, which the sizes of no result read."""
    lowered = lower(lambda x: x[-2:-1], X, output_type="stablehlo", dynamic_shapes=({0: Dim.DYNAMIC},))
    for rows in (2, 3):
        torch.testing.assert_close(lowered(X[:rows]), X[rows - 2 : rows - 1])


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa"])
def test_conditions_of_sizes_that_decompositions_find_equal(output_type):
    """A mask has as many elements as the axis that it selects from, which torch.export does not ask for."""

    def fill(x, mask):
        head, copy = x[:, :8] * 2, x.clone()
        copy[:, mask] = 1.5
        return head, copy, x.squeeze(1)

    sizes = {0: Dim("rows", max=5), 1: Dim("columns", min=2, max=7)}, {0: Dim.AUTO}
    lowered = lower(fill, X, X[0] > 0, output_type=output_type, dynamic_shapes=sizes)
    torch.testing.assert_close(lowered(X[:, :4], X[0, :4] > 0), fill(X[:, :4], X[0, :4] > 0))
    for x, message in ((X[:, :1], r"!= 1: .*x.squeeze\(1\)\) depends on it; but"), (X.repeat(1, 2), "to 7|<= 7")):
        with pytest.raises(UsageError, match=message):
            lowered(x, x[0] > 0)


def test_product_of_two_sizes():
    program = export_program(
        lambda x: x.reshape(-1).squeeze(), (X,), {}, ExportOptions(dynamic_shapes=({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},))
    )
    (guard,) = (guard for guard, line in guard_texts(program).items() if line)
    assert guard.count("*") == 1
    assert guard.endswith(" != 1")


def test_runtime_asserts_hold_the_condition():
    lowered = lower(branch, X, output_type="torch", dynamic_shapes=({0: Dim.DYNAMIC},), runtime_asserts=True)
    assert "!= 1" in str(lowered.module) or "Ne(" in str(lowered.module)
