"""Subgraphs that depend on no input are folded to constants."""

import pytest
import torch
from torch import nn

from fx_importer import lower
from fx_importer.decompositions import BASE, decompose
from fx_importer.fx_passes.constant_folding import fold_constants
from fx_importer.fx_passes.constant_values import FoldingRules
from tests.fx_passes.canonical import canonicalize

TOSA = FoldingRules(without_operands=True, lacks_float64=True)


class Positions(nn.Module):
    """Integers from Python numbers, from a buffer and from a parameter; and floats from a buffer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.scale, self.seen = nn.Buffer(torch.tensor([1.0, 2.0])), nn.Buffer(torch.tensor([1]))

    def forward(self, x):
        positions = torch.arange(4)[:, None] - torch.arange(4)[None]
        return x * self.weight.abs() + positions.clamp(min=0), self.scale.exp() * x[:, :2], self.seen + 1


def exported() -> torch.export.ExportedProgram:
    return canonicalize(decompose(torch.export.export(Positions(), (torch.ones(4, 4),)), BASE))


def operators(program: torch.export.ExportedProgram) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def test_input_independent_subgraph_is_folded():
    program = exported()
    folded, read = fold_constants(program, rules=TOSA)
    left = operators(folded)
    assert not any(name in "".join(left) for name in ("arange", "clamp", "exp", "sub"))
    assert "aten.abs.default" not in left
    assert set(read) == {"weight", "scale", "seen"}
    assert len(operators(program)) > len(left)
    x = torch.randn(4, 4)
    for a, b in zip(folded.module()(x), program.module()(x), strict=True):
        assert torch.equal(a, b)


def test_mutable_state_is_not_folded():
    left = operators(fold_constants(exported(), ["seen", "scale"], TOSA)[0])
    assert "aten.exp.default" in left
    assert left.count("aten.add.Tensor") == 2


def test_positions_are_folded_where_many_operators_compute_them():
    def program(x):
        short, long = torch.arange(5) * 3 + 1, ((torch.arange(7) * 12 + 6) // 7).clamp(1, 9) % 8
        return x[short] + x[long[:5]]

    canonical = canonicalize(decompose(torch.export.export(_module(program), (torch.ones(14),)), BASE))
    folded, read = fold_constants(canonical, rules=FoldingRules(position_operators=4))
    assert [name for name in operators(folded) if name != "aten.index.Tensor"] == [
        "aten.arange.start_step", "aten.mul.Tensor", "aten.add.Tensor", "aten.add.Tensor",
    ]  # fmt: skip
    assert not read
    assert torch.equal(folded.module()(x := torch.randn(14)), canonical.module()(x))
    assert "aten.mul.Tensor" in operators(fold_constants(canonical, rules=FoldingRules())[0])


def test_numbers_that_a_dtype_lacks_are_left():
    def program(x):
        return torch.special.xlogy(1e300, x)

    x = torch.tensor([0.5, 2.0])
    for output_type in ("linalg-on-tensors", "tosa", "stablehlo"):
        assert torch.equal(lower(program, x, output_type=output_type).run(x), program(x))


def test_random_large_and_empty_results_are_not_folded():
    def program(x):
        return torch.rand(2) + x, torch.arange(20000) + x[:1].long(), torch.zeros(0, dtype=torch.int64)

    canonical = canonicalize(torch.export.export(_module(program), (torch.ones(2),)))
    assert operators(fold_constants(canonical, rules=TOSA)[0]) == operators(canonical)


def _module(function):
    module = nn.Module()
    module.forward = function
    return module


@pytest.mark.parametrize("output_type", ["linalg", "stablehlo"])
def test_integers_are_rounded_as_the_fractions_that_are_folded(output_type):
    def interpolated(x):
        at = torch.arange(1.0, 65.0).log().exp()  # integers, but for the last bit
        below = at.floor()
        return x[below.long()] * (1 - (at - below)) + x[below.long() + 1] * (at - below)

    x = torch.randn(68, generator=torch.manual_seed(0))
    torch.testing.assert_close(lower(interpolated, x, output_type=output_type).run(x), interpolated(x))
