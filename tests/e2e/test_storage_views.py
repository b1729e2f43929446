"""as_strided views, reads and writes, against eager; and to output types without strides."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

from fx_importer import OutputType, UnsupportedProgramError, lower

X = torch.arange(24.0).reshape(4, 6)


class Reads(torch.nn.Module):
    def forward(self, x):
        y = x.t() * 2
        overlapping = x.as_strided((3, 4), (2, 5)), x.as_strided((2, 2), (6, 1), 3)
        return *overlapping, y.as_strided((3, 4), (2, 5)), torch.as_strided_copy(x, (3,), (7,)), x.unfold(1, 3, 2)


class Diagonals(torch.nn.Module):
    def forward(self, x):
        return x.diagonal(), x.diagonal(1), x.t().diagonal(-2)


class Writes(torch.nn.Module):
    def forward(self, x):
        y = x.clone()
        y.as_strided((4,), (7,)).add_(5)
        y[1:3, ::2].fill_(3)
        z = torch.as_strided_scatter(x.t(), torch.ones(2, 2), (2, 2), (6, 1), 3)
        return y, z, torch.diagonal_scatter(x, torch.ones(4))


class Bases(torch.nn.Module):
    """Views index the memory of what they are views of, at an absolute offset or their own."""

    def forward(self, x):
        y, z = x * 2, x.clone()
        row = z[1]
        row.add_(1)
        return (
            x[:1].expand(3, 6).as_strided((2, 2), (0, 1), 1),
            x[1].as_strided((2, 2), (1, 1), 1),
            x[1].as_strided((2, 2), (6, 1)),
            y.t()[2:].as_strided((2, 2), (1, 6)),
            y.split(2, 1)[1].as_strided((2, 2), (6, 1)),
            x.as_strided((2, 2), (1, 6), 3).as_strided((3,), (2,)),
            torch.view_as_real(torch.complex(x, y)).as_strided((3,), (2,), 1),
            row.as_strided((2, 2), (6, 1), 0),
        )


MODELS = {"reads": Reads(), "diagonals": Diagonals(), "writes": Writes(), "bases": Bases()}


@pytest.mark.slow_rows("^reads$")
@pytest.mark.parametrize("name", MODELS)
def test_linalg_agrees_with_eager(name):
    results = lower(MODELS[name], X, output_type="linalg").run(X)
    for ours, eager in zip(tree_leaves(results), tree_leaves(MODELS[name](X)), strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)


@pytest.mark.parametrize("given", [X[:, ::2], X[1:]], ids=["gaps", "part"])
def test_unknown_memory_is_refused(given):
    with pytest.raises(UnsupportedProgramError, match="whose (other )?values are unknown"):
        lower(lambda x: x.as_strided((2, 2), (1, 4), 0) + 1, given, output_type="linalg")


@pytest.mark.slow_rows("^(bases|reads)-output_type1")
@pytest.mark.parametrize("output_type", [OutputType.TOSA, OutputType.STABLEHLO])
@pytest.mark.parametrize("name", MODELS)
def test_lowers(name, output_type):
    assert lower(MODELS[name], X, output_type=output_type).module.operation.verify()


class Overwritten(torch.nn.Module):
    """Views of memory that the program overwrites, at an offset that torch's functional values do not have."""

    def forward(self, x):
        view, part, column = (
            x.as_strided((2,), (1,), 3),
            x.as_strided((2, 2), (4, 2), 1),
            x[:, 1].as_strided((2,), (4,)),
        )
        x.add_(1)
        copied = torch.as_strided_scatter(x, torch.ones(2), (2,), (3,), 2)
        x.copy_(x.sort(1, descending=True)[0])
        return view * 1, part * 1, column, copied


class WrittenThrough(torch.nn.Module):
    def forward(self, x):
        view = x.as_strided((2, 2), (4, 1), 1)
        x.add_(1)
        view[0].mul_(2)
        return view * 1, x.flatten()


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("model", [Overwritten(), WrittenThrough()], ids=["read", "written"])
def test_overwritten_memory_keeps_its_layout(model, columns):
    def part():
        whole = torch.arange(21.0)[1:].reshape(4, 5)
        return whole.t() if columns else whole

    program = torch.export.export(model, (part(),))
    for output_type in ("linalg", "tosa"):  # a second time: torch has cached values of functional operators
        if columns and isinstance(model, WrittenThrough):
            with pytest.raises(
                UnsupportedProgramError, match="writes to it, and the memory of 'x' is in another order"
            ):
                lower(program, output_type=output_type, mutation="functional")
            continue
        ours, eager = part(), part()
        results = lower(program, output_type=output_type, mutation="functional").run(ours), ours
        for found, wanted in zip(tree_leaves(results), tree_leaves((model(eager), eager)), strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)
