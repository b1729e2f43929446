"""Writes that schemas do not declare: in regions of autocast, and to running statistics."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from fx_importer.fx_graph.aliasing import eliminate_dead_nodes, is_functional, mutated_arguments, writes_of
from fx_importer.fx_graph.programs import copied_graph

X = torch.ones(3, 4)


class Region(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        z = x.clone()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z[0].add_(1)
        return z


class Statistics(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        mean, variance = torch.zeros(4), torch.ones(4)
        F.batch_norm(x, mean, variance, training=True)
        return mean


def writers(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if mutated_arguments(node)]


def test_region_writes_to_its_operands() -> None:
    program = torch.export.export(Region(), (X,))
    for graph in (program.graph, copied_graph(program.graph)):
        (region,) = writers(graph)
        assert isinstance(region.target, torch._ops.HigherOrderOperator)
        ((operand, writer),) = writes_of(region)
        assert operand.target is torch.ops.aten.clone.default
        assert writer.target is torch.ops.aten.add_.Tensor
    assert not is_functional(program)


def test_statistics_are_written_in_training() -> None:
    graph = torch.export.export(Statistics(), (X,)).graph
    (norm,) = writers(graph)
    assert len(mutated_arguments(norm)) == 2
    eliminate_dead_nodes(graph)
    assert norm in graph.nodes
