"""Submodules that compute the same graph are outlined as calls of one subgraph."""

import operator

import pytest
import torch
from torch import nn

from fx_importer.decompositions import BASE, decompose
from fx_importer.fx_passes.outline_layers import outline_layers
from fx_importer.fx_passes.repeated_layers import repeated_layers
from tests.fx_passes.canonical import canonicalize

INVOKE = torch.ops.higher_order.invoke_subgraph
X = torch.randn(2, 4)


class Block(nn.Module):
    """At least sixteen operations; ``tail`` comes last, ``scale`` is a scalar in it."""

    def __init__(self, size=4, scale=2.0, tail=None):
        super().__init__()
        self.linear, self.scale, self.tail = nn.Linear(size, size), scale, tail

    def forward(self, x):
        y = self.linear(x)
        for _ in range(4):
            y = torch.tanh(y.sin() * self.scale + x).cos() - x
        return y if self.tail is None else self.tail(y, x)


class Sequence(nn.Module):
    """Blocks, one after the other."""

    def __init__(self, *blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def exported(model, *args) -> torch.export.ExportedProgram:
    return canonicalize(decompose(torch.export.export(model.eval(), args or (X,)), BASE))


def calls(module) -> list[str]:
    return [node.args[1] for node in module.graph.find_nodes(op="call_function", target=INVOKE)]


def check(program: torch.export.ExportedProgram, *args) -> torch.fx.GraphModule:
    """Return the outlined graph; check that it computes what the original does, and that the original is unchanged."""
    nodes = list(program.graph.nodes)
    outlined = outline_layers(program)
    assert list(program.graph.nodes) == nodes
    assert not calls(program.graph_module)
    for a, b in zip(_flat(outlined.module()(*args or (X,))), _flat(program.module()(*args or (X,))), strict=True):
        assert torch.equal(a, b)
    return outlined.graph_module


def _flat(value):
    return value if isinstance(value, tuple) else (value,)


def test_equal_submodules_share_a_graph():
    graph = check(exported(Sequence(Block(), Block(), Block())))
    assert calls(graph) == ["Block"] * 3
    assert [node.op for node in graph.graph.nodes if node.op == "call_function"].count("call_function") == 6
    assert len([each for each in graph.modules() if each is not graph]) == 1


@pytest.mark.parametrize(
    "other",
    [Block(scale=3.0), Block(tail=lambda y, x: y.neg()), Block(tail=lambda y, x: x - y)],
    ids=["number", "operator", "operand"],
)
def test_different_submodules_have_different_graphs(other):
    first, second, *others = calls(check(exported(Sequence(Block(), other, Block(), other))))
    assert {first, second} == {"Block", "Block_2"}
    assert others == [first, second]


def test_unique_submodule_stays_inline():
    assert calls(check(exported(Sequence(Block(), Block(scale=-0.0), Block(), Block(scale=0.0))))) == ["Block"] * 2


def test_zero_is_not_minus_zero():
    assert not calls(check(exported(Sequence(Block(scale=-0.0), Block(scale=0.0)))))


def test_shapes_differ():
    def widen(y, x):
        return torch.cat([y, x], -1)

    model = Sequence(Block(), Block(tail=widen), Block(8), Block(8))
    assert calls(check(exported(model))) == ["Block", "Block"]


def test_submodule_called_repeatedly():
    block = Block()
    program = exported(Sequence(block, block, block))
    assert calls(check(program)) == ["Block"] * 3


def test_small_submodule_stays_inline():
    assert not calls(check(exported(Sequence(*(nn.Linear(4, 4) for _ in range(4))))))


def test_calls_return_the_union_of_used_results():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(tail=lambda y, x: (y, y.exp())) for _ in range(3)])

        def forward(self, x):
            x, _ = self.blocks[0](x)
            x, hidden = self.blocks[1](x)
            x, _ = self.blocks[2](x)
            return x, hidden

    program = exported(Both())
    graph = check(program)
    # Only the middle call uses the second result; export removes its computation from the others.
    assert calls(graph) == ["Block", "Block"]

    class All(Both):
        def forward(self, x):
            x, first = self.blocks[0](x)
            x, second = self.blocks[1](x)
            x, third = self.blocks[2](x)
            return x, first + second.sum() + third

    assert calls(check(exported(All()))) == ["Block"] * 3


def test_blocks_of_blocks():
    graph = check(exported(Sequence(Sequence(Block(), Block()), Sequence(Block(), Block()))))
    assert calls(graph) == ["Sequence"] * 2
    assert calls(graph.get_submodule("Sequence")) == ["Block"] * 2


def test_last_layer_may_differ():
    graph = check(exported(Sequence(Sequence(Block(), Block()), Sequence(Block(), Block(scale=1.0)))))
    assert calls(graph) == ["Block"] * 3


def test_branches_are_compared_node_by_node():
    def branch(number):
        return lambda y, x: torch.cond(x.sum() > 0, lambda a: a.sin() + number, lambda a: a.cos(), (y,))

    model = Sequence(*(Block(tail=branch(number)) for number in (1, 1, 2))).requires_grad_(False)
    assert calls(check(exported(model))) == ["Block", "Block"]


def test_mutations_stay_inline():
    class Counts(Block):
        def forward(self, x):
            return super().forward(x.clone().add_(1))

    program = canonicalize(torch.export.export(Sequence(Counts(), Counts()), (X,)))
    assert not calls(check(program))


def test_dynamic_sizes_are_operands():
    class Rows(Block):
        def forward(self, x):
            return super().forward(x) + x.shape[0]

    batch = {"x": {0: torch.export.Dim("batch")}}
    program = torch.export.export(Sequence(Rows(), Rows()), (X,), dynamic_shapes=batch)
    program = canonicalize(decompose(program, BASE))
    assert calls(check(program, torch.randn(5, 4))) == ["Rows", "Rows"]


def test_program_without_submodules_is_unchanged():
    class Plain(nn.Module):
        def forward(self, x):
            return x.sin()

    program = exported(Plain())
    assert outline_layers(program) is program


def _graph(*rows):
    """Return a graph of ``name: (operator, operands, submodule)``, and its nodes by name."""
    graph = torch.fx.Graph()
    nodes = {name: graph.placeholder(name) for name in ("x", "y")}
    for node in nodes.values():
        node.meta["val"] = X
    for name, operands, submodule in rows:
        node = nodes[name] = graph.call_function(operator.add, tuple(nodes[each] for each in operands))
        node.meta["val"] = X
        if submodule:
            node.meta["nn_module_stack"] = {submodule: (submodule, "Block")}
    graph.output(nodes[rows[-1][0]])
    return graph, nodes


def _block(submodule, start, end):
    """Return the rows of a submodule of sixteen additions; ``end`` is another operand of the last."""
    names = [f"{submodule}{i}" for i in range(16)]
    before = [start, *names]
    return [(name, (before[i], end if i == 15 else before[i]), submodule) for i, name in enumerate(names)]


def test_interleaved_nodes_move_before_or_after():
    first, second = _block("a", "x", "y"), _block("b", "a15", "y")
    free, depending = ("free", ("x", "x"), None), ("depending", ("a3", "x"), None)
    rows = [*first[:8], free, depending, *first[8:], *second, ("end", ("depending", "b15"), None)]
    graph, nodes = _graph(*rows)
    ((a, b),) = repeated_layers(graph, nn.Module())
    assert [a.moved, b.moved] == [[nodes["depending"]], []]
    assert a.inputs == [nodes["x"], nodes["y"]]


def test_dependence_on_interleaved_nodes_prevents_outlining():
    first, second = _block("a", "x", "between"), _block("b", "x", "y")
    graph, _ = _graph(*first[:8], ("between", ("a3", "x"), None), *first[8:], *second)
    assert not repeated_layers(graph, nn.Module())
