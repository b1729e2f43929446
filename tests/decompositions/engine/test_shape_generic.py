"""Rules that ask a symbolic size for its number are declined: their graphs would be right for the example only."""

import logging

import torch
from torch.export import Dim

from fx_importer.decompositions.engine.decompose import decompose

aten = torch.ops.aten


def exported(compute, *sizes: int):
    class Model(torch.nn.Module):
        def forward(self, x):
            return compute(x)

    shapes = (dict.fromkeys(range(len(sizes)), Dim.AUTO),)
    return torch.export.export(Model(), (torch.randn(sizes),), dynamic_shapes=shapes)


def operators(program):
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


def added_up(x):
    total = x[0]
    for row in range(1, x.shape[0]):
        total = total + x[row]
    return total


def test_a_rule_that_counts_up_to_a_size_leaves_the_operator_whole():
    program = exported(torch.sin, 3, 4)
    assert operators(decompose(program, {aten.sin.default: added_up})) == [aten.sin.default]


def test_it_may_count_up_to_a_size_that_is_known():
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.sum(x, 0)

    program = torch.export.export(Model(), (torch.randn(3, 4),), dynamic_shapes=({1: Dim.AUTO},))
    found = operators(decompose(program, {aten.sum.dim_IntList: lambda x, dim: added_up(x)}))
    assert aten.sum.dim_IntList not in found
    assert found.count(aten.add.Tensor) == 2


def test_a_rule_that_branches_on_a_size_is_declined_and_nothing_is_logged(caplog):
    def by_size(x):
        return torch.cos(x) if x.shape[0] < 10 else torch.tan(x)

    assert operators(decompose(exported(torch.sin, 3, 4), {aten.sin.default: by_size})) == [aten.sin.default]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_whether_there_is_more_than_one_needs_no_asking():
    def by_rank(x):
        return torch.cos(x) if x.shape[0] != 1 and x.shape[1] > 0 else torch.tan(x)

    assert operators(decompose(exported(torch.sin, 3, 4), {aten.sin.default: by_rank})) == [aten.cos.default]


def test_the_rule_that_is_next_in_the_table_is_asked():
    from fx_importer.decompositions.engine.table import Decomposition, DecompositionTable

    def by_size(x):
        return torch.tan(x) if x.shape[0] < 10 else x

    def of_any_size(x):
        return torch.cos(x)

    table = DecompositionTable({aten.sin.default: of_any_size}).preferring(Decomposition((aten.sin.default,), by_size))
    assert operators(decompose(exported(torch.sin, 3, 4), table)) == [aten.cos.default]
