"""Arithmetic on symbolic scalars on the JIT agrees with Python's, negative numbers included."""

import functools
import itertools
import math
import operator

import pytest
import torch
from torch.export import Dim
from torch.fx.experimental import sym_node

from fx_importer import lower
from fx_importer.engines import JitBackend
from fx_importer.importing import FxImporter
from fx_importer.importing.handlers.python_operators import SYMBOLIC_FUNCTIONS
from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import run_stage
from fx_importer.targets import pipeline_for

FIRST = {int: (-7, -3, -1, 0, 1, 2, 5), float: (-3.5, -2.5, -0.5, 0.0, 0.5, 1.5, 2.0, 3.25), bool: (False, True)}
OTHERS = {kind: tuple(value for value in values if value) for kind, values in FIRST.items()}  # nothing divides by zero

ONE = [operator.neg, operator.pos, operator.abs, operator.not_, round, math.ceil, math.floor, math.trunc, math.sqrt]
ONE += [torch.sym_float, torch.sym_int, torch.sym_not]
ONE += [function for function in SYMBOLIC_FUNCTIONS if function.__name__.startswith("_sym_")]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
EXTREMES = [torch.sym_max, torch.sym_min]
OTHER_TWO = [f for f in SYMBOLIC_FUNCTIONS if f not in (*ONE, *BITS, *EXTREMES, torch.sym_ite, torch.sym_sum)]

FUNCTIONS = {
    **{(kind,): ONE for kind in (int, float, bool)},
    (int, int): [*OTHER_TWO, *BITS, *EXTREMES],
    **{kinds: [*OTHER_TWO, *EXTREMES] for kinds in [(float, float), (int, float), (float, int)]},
    **{kinds: [*OTHER_TWO, *BITS] for kinds in [(bool, bool), (bool, int)]},
    **{(bool, kind, kind): [torch.sym_ite] for kind in (int, float, bool)},
}
ROWS = [(function, kinds) for kinds, functions in FUNCTIONS.items() for function in functions]


def compiled(function, examples):
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"a{i}") for i in range(len(examples))]
    for node, example in zip(nodes, examples, strict=True):
        node.meta["val"] = example
    graph.output(tuple(function(graph, nodes)))
    importer = FxImporter()
    importer.import_stateless_graph(graph)
    for stage in pipeline_for(OutputType.LINALG_ON_TENSORS, LoweringOptions()).stages:
        run_stage(stage, importer.module)
    return JitBackend().load(importer.module, "main")


@functools.cache
def all_of(kinds):
    """Return the compiled function of scalars of ``kinds`` that returns the results of all functions."""
    examples = [OTHERS[kind][-1] for kind in kinds]
    return compiled(lambda graph, nodes: [graph.call_function(f, tuple(nodes)) for f in FUNCTIONS[kinds]], examples)


def named(value):
    return "-".join(kind.__name__ for kind in value) if isinstance(value, tuple) else value.__name__


@pytest.mark.parametrize("function, kinds", ROWS, ids=named)
def test_as_in_python(function, kinds):
    position, tried = FUNCTIONS[kinds].index(function), 0
    for values in itertools.product(FIRST[kinds[0]], *(OTHERS[kind] for kind in kinds[1:])):
        try:
            expected = function(*values)
        except (ValueError, ZeroDivisionError):
            continue
        natural = function is not operator.pow or kinds[1] is float or values[1] >= 0
        if isinstance(expected, complex) or not natural:
            continue  # torch traces no complex scalar, and no int power that is a float
        result = all_of(kinds)(*values)[position]
        tried += 1
        assert type(result) is type(expected), values
        assert result == expected or math.isclose(result, expected, rel_tol=1e-14), values
    assert tried


@pytest.mark.parametrize("digits", [None, 0, 1, -1])
@pytest.mark.parametrize("values", [(2.5, 0.25, -0.75, 14.55), (-15, 5, 15, 25)], ids=["float", "int"])
def test_round(values, digits):
    run = compiled(lambda graph, nodes: [graph.call_function(round, (*nodes, digits))], values[:1])
    for value in values:
        expected = round(value, digits)
        (result,) = run(value)
        assert type(result) is type(expected)
        assert result == expected


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 16, 21])
def test_constant_powers_of_integers_are_exact(exponent):
    run = compiled(lambda graph, nodes: [graph.call_function(operator.pow, (*nodes, exponent))], [3])
    assert run(-7) == (-(7**exponent) if exponent % 2 else 7**exponent,)


def test_sum():
    run = compiled(lambda graph, nodes: [graph.call_function(torch.sym_sum, (list(nodes),))], [1, 2, 3])
    assert run(1, -20, 300) == (281,)


def test_every_symbolic_operation_of_torch_is_handled():
    named = {sym_node.METHOD_TO_OPERATOR[name] for name in sym_node.magic_methods if name != "is_integer"}
    assert named <= set(SYMBOLIC_FUNCTIONS)


class Sizes(torch.nn.Module):
    """Typical uses in models; results are sizes, values and predicates."""

    def forward(self, x):
        n = x.shape[0]
        behind = n - 9
        rows = torch.sym_max(torch.sym_min(n, 6), 4)
        return (
            x * (behind // 2) + behind % 4,
            x * (behind / 2) + torch.sym_sqrt(n),
            x.new_zeros(rows + (n % 3), n**2 - n),
            x * torch.sym_ite(n > 6, 2.0, 0.5),
            torch.sym_sum([n, behind, 3]),
            round(behind / 2),
            math.floor(behind / 2),
            n > 6,
            torch.sym_float(behind),
        )


@pytest.fixture(scope="module")
def sizes():
    return lower(Sizes(), torch.ones(8), dynamic_shapes=({0: Dim("n", min=2, max=32)},), output_type="linalg")


@pytest.mark.parametrize("n", [2, 5, 6, 8, 9, 14])
def test_model_agrees_at_several_sizes(sizes, n):
    x = torch.linspace(-1, 1, n)
    for result, expected in zip(sizes.run(x), Sizes()(x), strict=True):
        assert type(result) is type(expected)
        torch.testing.assert_close(result, expected)
