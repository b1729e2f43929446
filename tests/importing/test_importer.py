"""Errors of the importer, and the state that it leaves after one."""

from typing import Any

import pytest
import torch
from torch import fx
from torch._higher_order_ops.base_hop import BaseHOP
from torch.export import export
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from fx_importer import stateless_fx_import
from fx_importer.errors import UnsupportedProgramError, UsageError
from fx_importer.importing import FxImporter, FxImporterHooks, NodeBuilder, import_program
from fx_importer.importing.types import DTYPE_CODES
from fx_importer.options import ImportOptions, Mutation

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec")  # a warning of run_decompositions about torch itself


class Two(torch.nn.Module):
    def __init__(self, device=None):
        super().__init__()
        self.a = torch.nn.Linear(2, 2, device=device)
        self.b = torch.nn.Linear(2, 2, device=device)

    def forward(self, x):
        return self.b(self.a(x))


def test_all_weights_without_values_are_listed_in_one_error():
    program = export(Two("meta"), (torch.rand(1, 2, device="meta"),))
    with pytest.raises(UnsupportedProgramError) as error:
        import_program(program, ImportOptions())
    assert [unsupported.reason.split("'")[1] for unsupported in error.value.unsupported_nodes] == [
        "a.weight",
        "a.bias",
        "b.weight",
        "b.bias",
    ]
    assert "materialize it first" in str(error.value)


class Repeat(BaseHOP):
    """``repeat(graph, *operands, times=n)`` applies a graph n times."""

    def __init__(self):
        super().__init__("repeat")

    def __call__(self, graph, *operands, times):
        return super().__call__(graph, *operands, times=times)


repeat = Repeat()


class Repeats(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sine = torch.fx.symbolic_trace(lambda x: (x.sin(),))

    def forward(self, x):
        first = repeat(self.sine, x, times=2)[0]
        second = first * 2
        third = repeat(self.sine, second, times=3)[0]
        fourth = repeat(self.sine, x, times=1)[0]
        return third, fourth


def test_every_unknown_node_is_listed_with_its_source_line():
    program = export(Repeats(), (torch.rand(3, 4),))
    importer = FxImporter()
    with pytest.raises(UnsupportedProgramError) as error:
        importer.import_frozen_program(program)
    unsupported_nodes = error.value.unsupported_nodes
    assert len(unsupported_nodes) == 3
    assert all("repeat has no handler" in unsupported.reason for unsupported in unsupported_nodes)
    assert all(unsupported.where and __file__ in unsupported.where for unsupported in unsupported_nodes)
    assert "first = repeat(" in str(error.value)
    assert "func.func" not in str(importer.module)


def test_user_handler():
    def import_repeat(node: fx.Node, build: NodeBuilder):
        graph, *operands = node.args
        values = build.values(operands)
        times: Any = node.kwargs["times"]
        for _ in range(times):
            values = build.inline(graph, values)
        return values

    importer = FxImporter(handlers={repeat: import_repeat})
    importer.import_frozen_program(export(Repeats(), (torch.rand(3, 4),)))
    assert str(importer.module).count("torch.aten.sin") == 2 + 3 + 1


def test_user_handler_precedes_built_in_ones():
    def import_sine(node: fx.Node, build: NodeBuilder):
        return build.torch_op("my.sine", [build.type_of(node)], build.values(node.args)).result

    importer = FxImporter(handlers={torch.ops.aten.sin.default: import_sine})
    importer.import_frozen_program(export(Repeats().sine, (torch.rand(3),)))
    assert 'torch.operator "torch.my.sine"' in str(importer.module)


class Branches(torch.nn.Module):
    def forward(self, x):
        def one(t):
            t = torch.add(t, t, alpha=1 + 2j)
            return torch.cond(t.abs().sum() > 1, lambda u: u - 3, lambda u: u.clone(), (t,))

        def other(t):
            return torch.add(t, t, alpha=2j)

        return torch.cond(x.abs().sum() > 0, one, other, (x,))


def test_unknown_nodes_in_branches_are_listed_with_their_lines():
    with pytest.raises(UnsupportedProgramError) as error:
        FxImporter().import_frozen_program(export(Branches(), (torch.rand(3, dtype=torch.complex64),)))
    unsupported_nodes = error.value.unsupported_nodes
    # torch.export records the line of the operator, and a line of its generated code for a branch.
    assert [unsupported.source for unsupported in unsupported_nodes] == [
        "return torch.cond(x.abs().sum() > 0, one, other, (x,))"
    ] * 2
    assert "takes (1+2j)" in unsupported_nodes[0].reason  # the inner branches use it
    assert "takes 2j" in unsupported_nodes[1].reason


class Mutates(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(4))

    def forward(self, x, y):
        self.cache += x
        y.mul_(2)
        return self.cache + y


def test_mutated_state_is_an_error():
    program = export(Mutates(), (torch.ones(4), torch.ones(4))).run_decompositions({})
    with pytest.raises(UnsupportedProgramError) as error:
        FxImporter().import_frozen_program(program)
    message = str(error.value)
    assert "the buffer 'cache'" in message
    assert "y: an input" in message
    assert "mutation='functional'" in message
    assert "mutation='mutable'" in message


def test_hooks_without_a_store_get_the_buffer_as_an_argument():
    program = export(Mutates(), (torch.ones(4), torch.ones(4))).run_decompositions({})
    function = FxImporter(hooks=FxImporterHooks()).import_program(program)
    assert str(function.attributes["function_type"]).count("!torch.tensor<[4],f32>") == 2


def test_module_and_context_are_exclusive():
    importer = FxImporter()
    with pytest.raises(UsageError, match="not both"):
        FxImporter(module=importer.module, context=importer.context)


def test_given_module_or_context_is_used():
    first = FxImporter()
    program = export(torch.nn.ReLU(), (torch.ones(2),))
    second = FxImporter(module=first.module)
    second.import_frozen_program(program, func_name="f")
    assert "@f" in str(first.module)
    assert FxImporter(context=first.context).module.context == first.context


def test_mutating_operator_is_an_error():
    program = export(torch.nn.ReLU(inplace=True), (torch.ones(2),))
    with pytest.raises(UnsupportedProgramError, match="make the graph functional"):
        FxImporter().import_frozen_program(program)


def test_graph_without_example_values_is_an_error():
    gm = torch.fx.symbolic_trace(torch.nn.ReLU())
    with pytest.raises(UnsupportedProgramError, match="does not record its shape and dtype"):
        FxImporter().import_graph_module(gm)


def test_graph_with_tensor_meta_only():
    gm = export(torch.nn.LayerNorm(3), (torch.ones(2, 3),)).run_decompositions().graph_module
    expected = str(FxImporter().import_graph_module(gm))
    for node in gm.graph.nodes:
        examples = node.meta.pop("val", None)
        if isinstance(examples, torch.Tensor):
            node.meta["tensor_meta"] = _extract_tensor_metadata(examples)
        elif examples is not None:
            node.meta["tensor_meta"] = tuple(map(_extract_tensor_metadata, examples))
    assert str(FxImporter().import_graph_module(gm)) == expected
    assert "stablehlo.rsqrt" in str(stateless_fx_import(gm, output_type="stablehlo"))


def test_call_module_is_an_error():
    gm = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()))
    for node in gm.graph.nodes:
        node.meta["val"] = torch.ones(2, device="meta")
    with pytest.raises(UnsupportedProgramError, match="call_module"):
        FxImporter().import_graph_module(gm)


@pytest.mark.parametrize("dtype", DTYPE_CODES, ids=str)
def test_dtype_codes_equal_torchs(dtype):
    """Operators take the integer code of a dtype."""
    assert torch.ops.aten.zeros.default([1], dtype=DTYPE_CODES[dtype]).dtype == dtype


@pytest.mark.parametrize("mutation", Mutation, ids=lambda m: m.value)
@pytest.mark.parametrize("kind", ["parameter", "buffer", "non-persistent buffer", "lifted constant"])
def test_every_kind_of_constant_under_every_policy(kind, mutation):
    class Holds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            value = torch.tensor([1.0, 2.0])
            if kind == "parameter":
                self.held = torch.nn.Parameter(value)
            elif kind == "lifted constant":
                self.held = value
            else:
                self.register_buffer("held", value, persistent=kind == "buffer")

        def forward(self, x):
            return x + self.held

    program = export(Holds(), (torch.ones(2),))
    assert "0x04000000" in str(import_program(program, ImportOptions(mutation=mutation)))
