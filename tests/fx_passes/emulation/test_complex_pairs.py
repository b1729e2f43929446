"""Complex programs rewritten to pairs of real tensors agree with eager, interpreted node by node."""

import cmath

import pytest
import torch
from torch import Tensor, fx
from torch.export import export
from torch.utils._pytree import tree_leaves

from fx_importer.decompositions import TOSA, decompose
from fx_importer.errors import UnsupportedProgramError
from fx_importer.fx_passes.constant_folding import fold_constants
from fx_importer.fx_passes.constant_values import FoldingRules
from fx_importer.fx_passes.legalization import Dtypes, legalize, legalize_graph
from tests.fx_passes.canonical import canonicalize

aten = torch.ops.aten

PAIRS = Dtypes("an output", pairs={torch.complex32: torch.float16, torch.complex64: torch.float32})
Z = torch.tensor([[1 + 2j, -3.5, 0.25j], [4 - 1j, -0.5 - 0.5j, 1e-3 + 1.5j]])
W = torch.tensor([[2 - 1j, 1j, 3], [-1, 0.75 - 2j, 0.5 + 0.25j]])
NON_FINITE = torch.tensor([[0j, complex(cmath.inf, 1), -2.0], [-2j, complex(cmath.nan, 0), 1]])

CASES = {
    "movement": lambda z, w: (z.t(), z.reshape(3, 2), z[:, 1:], z[1], z.unsqueeze(0).expand(2, 2, 3), *z.split(2, 1)),
    "joining": lambda z, w: (torch.cat([z, w.real]), torch.stack([z, w], 1), torch.where(w.real > 0, z, w.imag)),
    "indexing": lambda z, w: (z[:, [2, 0]], z.gather(1, (w.real > 0).long()), z.index_select(1, torch.tensor([1]))),
    "order of elements": lambda z, w: (z.flip(0), z.roll(1, 1), z.tril(), torch.nn.functional.pad(z, (1, 1), value=2)),
    "numbers": lambda z, w: (z + 1j, z * 2, 2j / w, z - w.real, torch.full((2,), 1j), torch.ones_like(z), z * 0 + 1),
    "filling": lambda z, w: (z.masked_fill(w.real > 0, 1j), torch.full_like(z, 3 - 1j), torch.zeros_like(z) + w),
    "writing": lambda z, w: (z.index_add(0, torch.tensor([1]), w[:1]), z.scatter_add(1, w.real.long() % 3, w)),
    "parts": lambda z, w: (z.real, z.imag, torch.view_as_real(z), z.conj(), torch.complex(z.real, w.imag), w.imag + 1),
    "select of view_as_real": lambda z, w: (torch.view_as_real(z)[..., 0], torch.view_as_real(z * w).select(-1, -1)),
    "arguments": lambda z, w: (z, torch.view_as_real(w), w, z),
    "arithmetic": lambda z, w: (z + w, z - w, z * w, z / w, -z, z.reciprocal(), torch.rsub(z, w), z.addcmul(z, w)),
    "products": lambda z, w: (z @ w.t(), torch.bmm(z[None], w.t()[None]), torch.einsum("ij,kj->ik", z, w), z[0] @ w[0]),
    "sums": lambda z, w: (z.sum(), z.sum(1), z.mean(0, True), z.cumsum(1), z.prod(), z.prod(1, True), z.cumprod(1)),
    "sizes": lambda z, w: (
        z.abs(),
        z.angle(),
        z.sgn(),
        torch.polar(z.abs(), z.angle()),
        torch.linalg.norm(z),
        z.norm(1),
    ),
    "comparison": lambda z, w: (z == w, z != z, z == 0.25j, torch.isclose(z, z + 1e-7), z.bool(), z.any(), z.all(1)),
    "bool": lambda z, w: (
        z.logical_not(),
        torch.logical_and(z, w),
        torch.isnan(z),
        torch.isinf(z),
        torch.isfinite(z),
    ),
    "powers": lambda z, w: (z**2, z**3, z**-2, z**0, z**0.5, z**2.5, z**w, 2**z, z ** (1 - 1j), z.real**1j),
    "conversion": lambda z, w: (
        z.real.to(torch.complex64),
        (w.real > 0) * z,
        z.to(torch.complex32).to(torch.complex64),
    ),
    "shape": lambda z, w: (torch.zeros_like(z, dtype=torch.float32), torch.ones(z.shape) + z.real),
    "literal": lambda z, w: z + torch.tensor([1j, 2, 3 - 1j]),
    "variance": lambda z, w: (z.var(), z.std(1)),
}
FUNCTIONS = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "square", "sigmoid", "sgn"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
OF_NON_FINITE = ("abs", "angle", "sqrt", "isnan", "isinf", "isfinite", "logical_not", "conj_physical", "neg")


def program(function, *inputs: Tensor):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.phases = torch.nn.Buffer(torch.tensor([1j, 2, -1j]))

        def forward(self, *inputs):
            return function(*inputs)

    return canonicalize(decompose(export(Model(), inputs), TOSA))


def real(value: Tensor) -> Tensor:
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def check(function, *inputs: Tensor) -> None:
    legal, _ = fold_constants(legalize(program(function, *inputs), PAIRS), rules=FoldingRules(True, True))
    values = [e for node in legal.graph.nodes for e in tree_leaves(node.meta.get("val")) if isinstance(e, Tensor)]
    assert not any(each.is_complex() for each in values)
    tensors, given = {**legal.constants, **legal.state_dict}, iter(map(real, inputs))
    specs = legal.graph_signature.input_specs
    arguments = [real(tensors[each.target]) if each.target else next(given) for each in specs]
    results = fx.Interpreter(legal.graph_module).run(*arguments)
    for ours, eager in zip(tree_leaves(results), tree_leaves(function(*inputs)), strict=True):
        torch.testing.assert_close(ours, real(eager), rtol=2e-5, atol=2e-6, equal_nan=True)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", CASES)
def test_complex_numbers_as_pairs(name):
    check(CASES[name], Z, W)


def test_functions():
    check(lambda z: tuple(getattr(torch, name)(z) for name in FUNCTIONS), Z)


def test_infinities_and_nans():
    check(lambda z: tuple(getattr(torch, name)(z) for name in OF_NON_FINITE), NON_FINITE)


def test_parts_are_read_without_stacking():
    """A product reads four slices, and joins one result."""
    legal = legalize(program(lambda z, w: torch.view_as_complex(torch.view_as_real(z * w) * 2).conj(), Z, W), PAIRS)
    targets = [node.target for node in legal.graph.nodes]
    assert [targets.count(each) for each in (aten.select.int, aten.cat.default, aten.mul.Tensor)] == [6, 2, 5]


def test_unsupported_operators_are_listed_together():
    def function(z, w):
        return torch.randn_like(z), (z * w).sum(), torch.special.zeta(z.real, w.real), torch.unique(z, dim=0)

    with pytest.raises(UnsupportedProgramError) as raised:
        legalize(program(function, Z, W), PAIRS)
    assert len(raised.value.unsupported_nodes) == 2
    assert "unique_dim" in str(raised.value)
    assert "it computes with tensors of torch.complex64, and has no emulation by pairs of real tensors" in str(
        raised.value
    )
    assert __file__ in str(raised.value)


def test_given_program_is_unchanged():
    exported = program(lambda z: z * 2, Z)
    before = [(node.format_node(), str(node.meta["val"])) for node in exported.graph.nodes if "val" in node.meta]
    legalize(exported, PAIRS)
    assert [(n.format_node(), str(n.meta["val"])) for n in exported.graph.nodes if "val" in n.meta] == before


def test_graph_without_a_program_is_legalized():
    module = program(lambda z: (z.t(), z), Z).graph_module
    module.graph.erase_node(next(iter(module.graph.nodes)))  # the buffer, which nothing reads
    legal = legalize_graph(module, PAIRS)
    (transposed, same) = fx.Interpreter(legal).run(real(Z))
    assert torch.equal(transposed, real(Z.t()))
    assert torch.equal(same, real(Z))
