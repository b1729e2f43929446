"""Import of arithmetic on symbolic scalars, and its errors. Its results are tested in tests/e2e."""

import math
import operator

import pytest
import torch

from fx_importer.errors import UnsupportedProgramError
from fx_importer.importing import FxImporter
from fx_importer.importing.signatures.program_signature import plain_signature
from fx_importer.options import ImportOptions

aten = torch.ops.aten


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


@pytest.mark.parametrize(
    "function",
    [
        *(operator.add, operator.sub, operator.mul, operator.truediv),
        *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("examples", [(1.5, 2), (1, 2.5), (1.5, 2.5), (True, 2)], ids=str)
def test_mixed_scalars_are_promoted(function, examples):
    text = import_scalars(function, *examples)
    assert ("!torch.float" in text) == any(isinstance(x, float) for x in examples) or function is operator.truediv


@pytest.mark.parametrize(
    "target, limits, messages",
    [
        (
            torch.ops.aten.sym_constrain_range.default,
            {"min": 2, "max": 5},
            ["a0 is less than 2", "a0 is greater than 5"],
        ),
        (torch.ops.aten.sym_constrain_range.default, {"max": 5}, ["a0 is greater than 5"]),
        (torch.ops.aten.sym_constrain_range_for_size.default, {}, ["a0 is less than 0"]),
        (torch.ops.aten.sym_constrain_range_for_size.default, {"min": 2}, ["a0 is less than 2"]),
    ],
)
@pytest.mark.parametrize("runtime_asserts", [False, True])
def test_ranges_of_scalars(target, limits, messages, runtime_asserts):
    graph = torch.fx.Graph()
    number = graph.placeholder("a0")
    number.meta["val"] = 3
    graph.call_function(target, (number,), limits)
    graph.output((number,))
    importer = FxImporter()
    importer._import(graph, None, plain_signature(graph), ImportOptions(runtime_asserts=runtime_asserts))
    text = str(importer.module)
    assert text.count("torch.runtime.assert") == (len(messages) if runtime_asserts else 0)
    assert all(message in text for message in messages) is runtime_asserts
    assert "sym_constrain" not in text


def test_floor_of_a_float_uses_ceil():
    text = import_scalars(math.floor, 1.5)
    assert text.count("torch.aten.neg") == 2
    assert "torch.aten.ceil.float" in text


@pytest.mark.parametrize(
    "function, examples, reason",
    [
        (torch.sym_ite, (True, 1, 2.5), "a choice between !torch.int and !torch.float has no type"),
        (operator.and_, (1.5, 2.5), "'and' of the bits of !torch.float and !torch.float: Python has it for ints only"),
        (round, (1.5, 2), "a number is rounded to a number of digits that is not constant"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_unsupported_arithmetic_is_an_error(function, examples, reason):
    with pytest.raises(UnsupportedProgramError, match=reason):
        import_scalars(function, *examples)
