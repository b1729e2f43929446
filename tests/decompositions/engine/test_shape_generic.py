"""Rules that specialize a symbolic size are not applied: their graphs would hold for the example size only."""

import logging

import torch
from torch.export import Dim

from fx_importer import OutputType
from fx_importer.decompositions.engine.decompose import decompose
from fx_importer.targets import target_for

aten = torch.ops.aten


def exported(compute, *sizes: int):
    class Model(torch.nn.Module):
        def forward(self, x):
            return compute(x)

    shapes = (dict.fromkeys(range(len(sizes)), Dim.AUTO),)
    return torch.export.export(Model(), (torch.randn(sizes),), dynamic_shapes=shapes)


def operators(program):
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


def sum_of_rows(x):
    total = x[0]
    for row in range(1, x.shape[0]):
        total = total + x[row]
    return total


def test_rule_that_loops_over_a_dynamic_size_is_not_applied():
    program = exported(torch.sin, 3, 4)
    assert operators(decompose(program, {aten.sin.default: sum_of_rows})) == [aten.sin.default]


def test_rule_that_loops_over_a_static_size_is_applied():
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.sum(x, 0)

    program = torch.export.export(Model(), (torch.randn(3, 4),), dynamic_shapes=({1: Dim.AUTO},))
    found = operators(decompose(program, {aten.sum.dim_IntList: lambda x, dim: sum_of_rows(x)}))
    assert aten.sum.dim_IntList not in found
    assert found.count(aten.add.Tensor) == 2


def test_rule_that_branches_on_a_size_is_not_applied_or_logged(logged):
    def by_size(x):
        return torch.cos(x) if x.shape[0] < 10 else torch.tan(x)

    assert operators(decompose(exported(torch.sin, 3, 4), {aten.sin.default: by_size})) == [aten.sin.default]
    assert not [record for record in logged if record.levelno >= logging.WARNING]


def test_check_of_a_data_dependent_size_is_no_branch():
    class Model(torch.nn.Module):
        def forward(self, x, mask):
            return torch.sin(x[mask])

    def checked(x):
        torch._check(x.shape[0] == 3)
        return torch.cos(x)

    program = torch.export.export(Model(), (torch.randn(4), torch.tensor([True, True, False, True])))
    assert aten.cos.default in operators(decompose(program, {aten.sin.default: checked}))


def test_comparison_with_one_adds_no_guard():
    def by_rank(x):
        return torch.cos(x) if x.shape[0] != 1 and x.shape[1] > 0 else torch.tan(x)

    assert operators(decompose(exported(torch.sin, 3, 4), {aten.sin.default: by_rank})) == [aten.cos.default]


def test_next_rule_of_the_table_is_tried():
    from fx_importer.decompositions.engine.table import Decomposition, DecompositionTable

    def by_size(x):
        return torch.tan(x) if x.shape[0] < 10 else x

    def of_any_size(x):
        return torch.cos(x)

    table = DecompositionTable({aten.sin.default: of_any_size}).preferring(Decomposition((aten.sin.default,), by_size))
    assert operators(decompose(exported(torch.sin, 3, 4), table)) == [aten.cos.default]


def test_windows_are_decomposed_beside_a_write_through_a_view():
    """The C++ lowering of `unfold` to TOSA does not end for a dynamic axis."""

    class Model(torch.nn.Module):
        def forward(self, x, y):
            y.split(1, 1)[1].zero_()  # torch traces the whole program again
            return x.unfold(-1, 2, 3)

    shapes = (dict.fromkeys(range(2), Dim.AUTO),) * 2
    program = torch.export.export(Model(), (torch.randn(2, 4), torch.randn(5, 3)), dynamic_shapes=shapes)
    assert aten.unfold.default not in operators(decompose(program, target_for(OutputType.TOSA).decompositions))
