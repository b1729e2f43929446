"""What a graph needs, and what it does not."""

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from fx_importer.decompositions.engine.dce import eliminate_dead_code

aten = torch.ops.aten


def left_of(function, *inputs) -> list[object]:
    graph: fx.Graph = make_fx(function)(*inputs).graph
    eliminate_dead_code(graph)
    graph.lint()
    return [node.target for node in graph.nodes if node.op == "call_function"]


def test_a_write_to_memory_that_nothing_reads_goes():
    def model(x):
        x.new_zeros(2)[0].add_(1)
        return x.sin()

    assert left_of(model, torch.ones(2)) == [aten.sin.default]


def test_a_write_to_memory_that_is_read_later_stays():
    def model(x):
        y = x.new_zeros(2)
        y[0].add_(1)
        return x + y

    assert aten.add_.Tensor in left_of(model, torch.ones(2))


def test_a_write_to_an_input_stays():
    def model(x):
        x[0].add_(1)
        return x.new_zeros(2)

    assert aten.add_.Tensor in left_of(model, torch.ones(2))


def test_an_effect_stays():
    def model(x):
        x.cos()
        torch.ops.aten._print("here")
        return x.sin()

    assert left_of(model, torch.ones(2)) == [aten._print.default, aten.sin.default]
