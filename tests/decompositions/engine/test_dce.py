"""Dead code elimination keeps what outputs, later reads and effects need."""

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from fx_importer.decompositions.engine.dce import eliminate_dead_code

aten = torch.ops.aten


def operators_after_dce(function, *inputs) -> list[object]:
    graph: fx.Graph = make_fx(function)(*inputs).graph
    eliminate_dead_code(graph)
    graph.lint()
    return [node.target for node in graph.nodes if node.op == "call_function"]


def test_unread_write_is_removed():
    def model(x):
        x.new_zeros(2)[0].add_(1)
        return x.sin()

    assert operators_after_dce(model, torch.ones(2)) == [aten.sin.default]


def test_write_read_later_is_kept():
    def model(x):
        y = x.new_zeros(2)
        y[0].add_(1)
        return x + y

    assert aten.add_.Tensor in operators_after_dce(model, torch.ones(2))


def test_write_to_an_input_is_kept():
    def model(x):
        x[0].add_(1)
        return x.new_zeros(2)

    assert aten.add_.Tensor in operators_after_dce(model, torch.ones(2))


def test_effect_is_kept():
    def model(x):
        x.cos()
        torch.ops.aten._print("here")
        return x.sin()

    assert operators_after_dce(model, torch.ones(2)) == [aten._print.default, aten.sin.default]
