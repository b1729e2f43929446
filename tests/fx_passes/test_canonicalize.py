import pytest
import torch
from torch.export import Dim, ExportedProgram, export
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from fx_importer.decompositions import BASE, decompose
from fx_importer.errors import UnsupportedProgramError
from fx_importer.fx_passes.normal_form import violations
from testing.zoo import ZOO
from tests.fx_passes.canonical import canonicalize

aten = torch.ops.aten
SMALL = [name for name, model in ZOO.items() if model.small]


def exported(function, *inputs: torch.Tensor, dynamic: bool = False) -> ExportedProgram:
    class Model(torch.nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    shapes = (tuple({0: Dim("batch")} for _ in inputs),) if dynamic else None
    return export(Model(), inputs, dynamic_shapes=shapes, strict=False)


def operators(program: ExportedProgram) -> list[object]:
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


def canonical(function, *inputs: torch.Tensor, others=(), dynamic: bool = False) -> ExportedProgram:
    """Canonicalize ``function``; check that results agree with eager, and that the exported program is unchanged."""
    program = exported(function, *inputs, dynamic=dynamic)
    before = [node.format_node() for node in program.graph.nodes], str(program.graph_signature)
    result = canonicalize(program)
    assert ([node.format_node() for node in program.graph.nodes], str(program.graph_signature)) == before
    assert not violations(result)
    for each in (inputs, *others):
        for ours, eager in zip(tree_leaves(result.module()(*each)), tree_leaves(function(*each)), strict=True):
            assert_close(ours, eager, equal_nan=True)
    return result


X = torch.randn(3, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone(),
        lambda x: x.detach(),
        lambda x: x.contiguous(),
        lambda x: x.to(torch.float32),
        lambda x: aten._to_copy(x, dtype=torch.float32),
        lambda x: x.expand(3, 4),
        lambda x: x.view(3, 4),
        lambda x: x.permute(0, -1),
        lambda x: x[:],
        lambda x: x[0:9],
        lambda x: x.repeat(1, 1),
        lambda x: x.squeeze(1),
        lambda x: x * 1,
        lambda x: x / 1.0,
        lambda x: torch.nn.functional.dropout(x, 0.5, training=False),
        lambda x: torch.nn.functional.pad(x, (0, 0)),
        lambda x: aten.constant_pad_nd(x, [0, 0]),
        lambda x: x.as_strided((3, 4), (4, 1)),
        lambda x: aten.slice_scatter(torch.zeros(3, 4), x),
    ],
)
def test_identities(function) -> None:
    result = canonical(lambda x: function(x) + 1, X)
    assert operators(result) == [aten.add.Tensor]
    assert operators(canonical(function, X)) == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.to(torch.float64),
        lambda x: x.permute(1, 0),
        lambda x: x[::2],
        lambda x: x.expand(2, 3, 4),
        lambda x: x * torch.ones(4),
        lambda x: torch.arange(3) * 1.0,  # of whole numbers, a float
        lambda x: x * 2,
        lambda x: torch.nn.functional.pad(x, (1, -1)),
        lambda x: aten.constant_pad_nd(x, [1, -1]),
        lambda x: x[:, :4].flip(0),
    ],
)
def test_non_identities_are_kept(function) -> None:
    assert operators(canonical(function, X))


def test_identities_with_symbolic_shapes() -> None:
    result = canonical(lambda x: x.expand(x.shape[0], 4).view(x.shape[0], 4), X, dynamic=True, others=[(X[:2],)])
    assert operators(result) == []


def test_clone_of_a_mutated_tensor_is_kept() -> None:
    def write(x):
        copy = x.clone()
        copy.add_(1)
        return copy, x.clone()

    result = canonicalize(exported(write, X))
    assert operators(result).count(aten.clone.default) == 2
    assert [each.reason for each in violations(result)] == ["aten.add_.Tensor writes to its argument"]
    assert_close(result.module()(X), write(X))


def test_output_that_is_an_input() -> None:
    result = canonical(lambda x, y: (x.clone(), y + 1, y + 1), X, X + 1)
    assert result.graph_signature.output_specs[0].arg.name == "inputs_0"


def test_single_symbolic_size_of_a_view_becomes_minus_one() -> None:
    others = [(torch.randn(5, 4),)]
    merged = canonical(lambda x: x.view(x.shape[0] * 4), X, dynamic=True, others=others)
    assert merged.graph.find_nodes(op="call_function", target=aten.reshape.default)[0].args[1] == [-1]
    split = canonical(lambda x: x.view(x.shape[0], 2, 2), X, dynamic=True, others=others)
    assert split.graph.find_nodes(op="call_function", target=aten.reshape.default)[0].args[1] == [-1, 2, 2]
    assert aten.sym_size.int not in operators(split)
    expanded = canonical(lambda x: x.unsqueeze(0).expand(2, x.shape[0], 4), X, dynamic=True, others=others)
    assert expanded.graph.find_nodes(op="call_function", target=aten.expand.default)[0].args[1] == [2, -1, -1]


def test_intermediate_constant_is_a_value() -> None:
    assert operators(canonical(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]), X)) == [aten.add.Tensor]


def test_assertions_are_removed() -> None:
    def check(x):
        n = x.sum().long().item()
        torch._check(n >= 0)
        torch._check(n < 100)
        return x + n

    program = exported(check, torch.ones(3))
    assert aten._assert_scalar.default in operators(program)
    assert aten._assert_scalar.default not in operators(canonicalize(program))


SCALAR = torch.tensor(2.5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.argmax(0),
        lambda x: x.argmax(0, keepdim=True),
        lambda x: x.amax(0, keepdim=True),
        lambda x: x.amin(-1),
        lambda x: (x > 0).any(0),
        lambda x: (x > 0).all(0, keepdim=True),
        lambda x: x.max(0),
        lambda x: x.min(0, keepdim=True),
        lambda x: x.sum(0),
        lambda x: x.mean(-1, keepdim=True),
        lambda x: x.prod(0),
        lambda x: x.logsumexp(0),
        lambda x: x.softmax(0),
        lambda x: x.log_softmax(-1),
        lambda x: x.sort(0),
        lambda x: x.topk(1),
        lambda x: x.cumsum(0),
        lambda x: x.cumprod(0),
        lambda x: x.kthvalue(1),
        lambda x: x.index_select(0, torch.tensor([0])),
        lambda x: x.gather(0, torch.tensor(0)),
        lambda x: x.flip(0),
    ],
)
def test_dimension_of_a_scalar(function) -> None:
    canonical(function, SCALAR)


@pytest.mark.parametrize(
    "function, gathers",
    [
        (lambda x: x.as_strided((6, 4), (4, 1)), False),
        (lambda x: x.as_strided((6, 4), (1, 6)), False),
        (lambda x: (x + 1).t().as_strided((4, 6), (6, 1)), False),
        (lambda x: x.as_strided((4, 3), (6, 2), 1), True),
        (lambda x: x.as_strided((20, 5), (1, 1)), True),
        (lambda x: x.as_strided((), (), 7), True),
        (lambda x: x.mean([0, 1], keepdim=True).as_strided((1, 1), (5, 7)), False),
    ],
)
def test_strides(function, gathers: bool) -> None:
    result = operators(canonical(function, torch.randn(4, 6)))
    assert aten.as_strided.default not in result
    assert (aten.index.Tensor in result) == gathers


def test_symbolic_strides() -> None:
    others = [(torch.randn(7, 6),)]
    result = canonical(
        lambda x: x.as_strided((x.shape[0], 2), (6, 1), 1), torch.randn(4, 6), dynamic=True, others=others
    )
    assert aten.as_strided.default not in operators(result)


def test_strides_of_parts_of_the_memory() -> None:
    result = canonicalize(exported(lambda x: x[:, ::2].as_strided((4,), (6,), 1), torch.randn(4, 6)))
    x = torch.randn(4, 6)
    assert aten.as_strided.default not in operators(result)
    assert_close(result.module()(x), x[:, 1])


def test_strides_of_unknown_memory_are_refused() -> None:
    with pytest.raises(UnsupportedProgramError, match="do not fill its memory"):
        canonicalize(exported(lambda x: x.as_strided((4,), (6,)), torch.randn(4, 6)[:, ::2]))


def test_regions_are_inlined() -> None:
    def nested(x):
        with torch.no_grad():
            y = x.sin()
            with torch.enable_grad():
                y = torch.cond(y.sum() > 0, lambda y: y + 1, lambda y: y.clone(), (y,))
        return y * x

    result = canonical(nested, X.abs(), others=[(-X.abs(),)])
    assert torch.ops.higher_order.wrap_with_set_grad_enabled not in operators(result)
    assert torch.ops.higher_order.cond in operators(result)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.nn.functional.pixel_shuffle(x.new_ones(1, 0, 1, 1) * 2, 1),
        lambda x: x[:0] @ x.mT,
        lambda x: torch.sort(x[:, :0] + 1),
        lambda x: torch.mm(x[:, :0], x[:0]),
    ],
)
def test_empty_result_is_a_constant(function) -> None:
    assert set(operators(canonical(function, X))) == {aten.full.default}


def test_empty_operand_is_computed_with() -> None:
    assert operators(canonical(lambda x: (x[:0] * 2).sum() + x, X)) == [
        *(aten.full.default, aten.sum.default, aten.add.Tensor)
    ]
    assert operators(canonical(lambda x: torch.cat([x[:0] * 2, x]).sum(), X)) == [aten.cat.default, aten.sum.default]
    assert operators(canonical(lambda x: x.sum(), X[:0])) == [aten.full.default, aten.sum.default]


def test_negative_dimension_of_index_operators() -> None:
    index = torch.tensor([[0, 1], [2, 3], [1, 1]])
    for function in (lambda x, i: x.scatter_add(-1, i, x), lambda x, i: x.gather(-1, i)):
        (node,) = [node for node in canonical(function, X, index).graph.nodes if node.op == "call_function"]
        assert node.args[1] == 1


@pytest.mark.slow_rows(unless="bert_small|lstm|resnet_small|llama_small")
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.filterwarnings("ignore:The tensor attributes .* were assigned during export:UserWarning")
def test_models(name: str) -> None:
    model, args, kwargs = ZOO[name].build()
    result = canonicalize(decompose(export(model, args, kwargs, strict=False), BASE))
    assert not violations(result)
    assert_close(result.module()(*args, **kwargs), model(*args, **kwargs), rtol=1e-4, atol=1e-4)
