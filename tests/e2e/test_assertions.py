"""Assertions of a program and constraints of its inputs: checked with ``runtime_asserts``.

Without it, those about numbers that are read from tensors are assumptions.
"""

import pytest
import torch
from torch.export import Dim

from fx_importer import UsageError, lower
from fx_importer.engines import JitBackend

assert_all = torch.ops.aten._assert_async.msg


class Items(torch.nn.Module):
    """The number of rows is data-dependent."""

    def forward(self, x, n):
        rows = n.item()
        torch._check(rows >= 2)
        torch._check(rows <= 5)
        torch._check(rows % 2 == 0)
        return x[:rows] * 2


class Asserts(torch.nn.Module):
    def forward(self, x):
        assert_all(x.sum() > 0, "the sum must be positive")
        return torch.cond(x[0] > 0, self.checked, lambda t: t * 3, (x,))

    def checked(self, t):
        assert_all((t < 9).all(), "in a branch, all must be below 9")
        return t * 2


class Ranges(torch.nn.Module):
    """Sizes that are equal, doubled, and larger by one."""

    def forward(self, x, y, z):
        return x[:2] + y[:2] + z[:2]


HALF = Dim("half", min=2, max=32)
DOUBLED = ({0: 2 * HALF}, {0: 2 * HALF}, {0: 2 * HALF + 1})
ROWS = Dim("rows", min=2, max=32)
PLAIN = ({0: ROWS}, {0: 2 * ROWS}, {0: ROWS})


def compiled(model, *inputs, **options):
    return JitBackend().load(lower(model, *inputs, output_type="linalg", **options).module)


@pytest.fixture(scope="module", params=[False, True], ids=["off", "on"])
def items(request):
    return request.param, compiled(Items(), torch.ones(5), torch.tensor(4), runtime_asserts=request.param)


@pytest.fixture(scope="module", params=[False, True], ids=["off", "on"])
def asserts(request):
    return request.param, compiled(Asserts(), torch.ones(2), runtime_asserts=request.param)


def checks(compiled, inputs, failing):
    on, run = compiled
    if on and failing:
        with pytest.raises(UsageError, match=failing):
            run(*inputs)
        return None
    return run(*inputs)[0]


ASSUMED = {"u0 >= 2": r"n.item\(\) >= 2", "Mod": r"\(n.item\(\) % 2\) == 0"}


@pytest.mark.parametrize("rows, failing", [(2, ""), (4, ""), (0, "u0 >= 2"), (3, "Mod")])
def test_data_dependent_scalars(items, rows, failing):
    asserted, run = items
    x = torch.arange(5.0)
    if failing:
        with pytest.raises(UsageError, match=failing if asserted else ASSUMED[failing]):
            run(x, torch.tensor(rows))
    else:
        assert torch.equal(run(x, torch.tensor(rows))[0], x[:rows] * 2)


@pytest.mark.parametrize(
    "values, failing",
    [((1.0, 2.0), ""), ((-1.0, 20.0), ""), ((-1.0, 0.0), "the sum must be positive"), ((1.0, 20.0), "below 9")],
)
def test_assertions_of_the_model(asserts, values, failing):
    x = torch.tensor(values)
    result = checks(asserts, (x,), failing)
    assert result is None or torch.equal(result, x * 2 if values[0] > 0 else x * 3)


@pytest.fixture(scope="module")
def doubled():
    inputs = (torch.ones(8), torch.ones(8), torch.ones(9))
    return compiled(Ranges(), *inputs, dynamic_shapes=DOUBLED, runtime_asserts=True)


@pytest.fixture(scope="module")
def plain():
    inputs = (torch.ones(4), torch.ones(8), torch.ones(4))
    return compiled(Ranges(), *inputs, dynamic_shapes=PLAIN, runtime_asserts=True)


@pytest.mark.parametrize(
    "sizes, failing",
    [
        ((8, 8, 9), ""),
        ((64, 64, 65), ""),
        ((8, 6, 9), "size 0 of 'y' is not equal to size 0 of 'x'"),
        ((5, 5, 6), "size 0 of 'x' is not a multiple of 2"),
        ((2, 2, 3), "size 0 of 'x' is less than 4"),
        ((66, 66, 67), "size 0 of 'x' is greater than 64"),
        ((8, 8, 11), r"size 0 of 'z' is not 2\*\(size 0 of 'x', by 2\) \+ 1"),
    ],
)
def test_ranges_of_inputs(doubled, sizes, failing):
    checks((True, doubled), tuple(map(torch.ones, sizes)), failing)


@pytest.mark.parametrize(
    "sizes, failing",
    [
        ((4, 8, 4), ""),
        ((1, 2, 1), "size 0 of 'x' is less than 2"),
        ((4, 9, 4), r"size 0 of 'y' is not 2\*\(size 0 of 'x'\)"),
        ((4, 8, 5), "size 0 of 'z' is not equal to size 0 of 'x'"),
    ],
)
def test_ranges_of_symbolic_inputs(plain, sizes, failing):
    checks((True, plain), tuple(map(torch.ones, sizes)), failing)


class Guarded(torch.nn.Module):
    """Two branches, and a reshape, by sizes."""

    def forward(self, x, y):
        total = x.sum() + y.sum() if x.shape[0] + y.shape[0] > 10 else x.sum() - y.sum()
        return total, x.view(y.shape[0], -1)


GUARDED = ({0: Dim.AUTO}, {0: Dim.AUTO})


@pytest.mark.parametrize("form", ["linalg-on-tensors", "tosa", "stablehlo", "pt2"])
def test_callers_check_guards_of_several_sizes(form, tmp_path):
    program = torch.export.export(Guarded(), (torch.ones(8), torch.ones(4)), dynamic_shapes=GUARDED)
    if form == "pt2":
        torch.export.save(program, tmp_path / "guarded.pt2")
        program = torch.export.load(tmp_path / "guarded.pt2")
    lowered = lower(program, output_type="linalg" if form == "pt2" else form)
    for sizes, refused in (((12, 3), ""), ((12, 6), ""), ((6, 3), r"\+ .* > 10"), ((13, 3), "% .* == 0")):
        example = tuple(torch.arange(float(size)) for size in sizes)
        if refused:
            with pytest.raises(UsageError, match=f"exported for sizes with .*{refused}.*, but .* is {sizes[0]}"):
                lowered.run(*example)
        else:
            torch.testing.assert_close(lowered.run(*example), Guarded()(*example))


def test_guards_of_several_sizes_as_assertions():
    run = compiled(Guarded(), torch.ones(8), torch.ones(4), dynamic_shapes=GUARDED, runtime_asserts=True)
    for sizes, failing in (((12, 3), ""), ((6, 3), r"> 10 is false"), ((13, 3), r"Mod\(.*\), 0\) is false")):
        checks((True, run), tuple(map(torch.ones, sizes)), failing)


@pytest.mark.parametrize("output_type", ["tosa", "stablehlo"])
def test_output_types_without_assertions(output_type):
    with pytest.raises(UsageError, match=f"runtime_asserts: {output_type} has no assertions"):
        lower(torch.relu, torch.ones(2), output_type=output_type, runtime_asserts=True)


def inverses(a):
    return torch.linalg.inv(a) + torch.linalg.cholesky_ex(a, check_errors=True)[0], torch.linalg.inv_ex(a)[1]


@pytest.mark.slow
def test_factorizations_that_fail():
    regular, singular = 2 * torch.eye(2), torch.ones(2, 2)
    run = compiled(inverses, regular, runtime_asserts=True)
    assert torch.equal(run(regular)[0], inverses(regular)[0])
    with pytest.raises(UsageError, match=r"torch\.linalg\.inv failed"):
        run(singular)
    with pytest.raises(UsageError, match=r"torch\.linalg\.cholesky failed"):
        run(-regular)
    assert compiled(inverses, regular)(singular)[1] == 2
