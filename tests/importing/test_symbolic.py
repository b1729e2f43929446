"""Arithmetic on symbolic scalars."""

import math
import operator

import pytest
import torch

from fx_importer.importing import FxImporter
from fx_importer.importing.handlers.symbolic import SYMBOLIC_FUNCTIONS

UNARY_INT = [operator.neg, operator.pos, operator.abs, operator.not_, math.ceil, math.floor, math.trunc, math.sqrt]
UNARY_INT += [torch.sym_float, torch.sym_int, torch.sym_not, torch._sym_sqrt]  # pyright: ignore[reportAttributeAccessIssue]
BINARY_INT = [f for f in SYMBOLIC_FUNCTIONS if f not in UNARY_INT]


def import_scalars(function, *examples):
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"a{i}") for i in range(len(examples))]
    for node, example in zip(nodes, examples, strict=True):
        node.meta["val"] = example
    result = graph.call_function(function, tuple(nodes))
    graph.output(result)
    importer = FxImporter()
    importer.import_stateless_graph(graph)
    assert importer.module.operation.verify()
    return str(importer.module)


@pytest.mark.parametrize("function", UNARY_INT, ids=lambda f: f.__name__)
def test_one_integer(function):
    assert "return" in import_scalars(function, 7)


@pytest.mark.parametrize("function", [f for f in BINARY_INT if f is not operator.pow], ids=lambda f: f.__name__)
def test_two_integers(function):
    assert "return" in import_scalars(function, 7, 2)


@pytest.mark.parametrize(
    "function",
    [
        *(operator.add, operator.sub, operator.mul, operator.truediv),
        *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("examples", [(1.5, 2), (1, 2.5), (1.5, 2.5), (True, 2)], ids=str)
def test_mixed_numbers_are_promoted(function, examples):
    text = import_scalars(function, *examples)
    assert ("!torch.float" in text) == any(isinstance(x, float) for x in examples) or function is operator.truediv


def test_floor_of_a_float_is_spelled_with_ceil():
    text = import_scalars(math.floor, 1.5)
    assert text.count("torch.aten.neg") == 2
    assert "torch.aten.ceil.float" in text
