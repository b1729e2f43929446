"""Nodes have the source line that calls their operator."""

import inspect

import torch

from fx_importer import lower
from fx_importer.diagnostics.mlir_diagnostics import read_frames, user_frame


def helper(x):
    return x.sin()


class Model(torch.nn.Module):
    def forward(self, x):
        return helper(x)


def line_of_the_call(model) -> int:
    program = lower(model, torch.ones(2), output_type="raw").program
    (node,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
    frame = user_frame(tuple(reversed(read_frames(node.meta["stack_trace"]))))
    assert frame is not None
    assert frame[0] == __file__
    return frame[1]


def test_function_called_by_a_module():
    assert line_of_the_call(Model()) == inspect.getsourcelines(helper)[1] + 1


def test_plain_function():
    assert line_of_the_call(helper) == inspect.getsourcelines(helper)[1] + 1
