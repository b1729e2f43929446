"""Programs legalized to the dtypes of an output type agree with eager, interpreted node by node."""

import pytest
import torch
from torch import Tensor, fx
from torch.export import export
from torch.utils._pytree import tree_leaves

from fx_importer.decompositions import LINALG, decompose
from fx_importer.errors import UnsupportedProgramError
from fx_importer.fx_passes.emulation.signless_types import SIGNED_DTYPES
from fx_importer.fx_passes.legalization import Dtypes, legalize
from tests.fx_passes.canonical import canonicalize

aten = torch.ops.aten

SIGNLESS = Dtypes("a signless output", unsigned=False)

UNSIGNED = {
    torch.uint8: (torch.tensor([[255, 1, 2], [3, 128, 200]]), torch.tensor([[2, 254, 7], [3, 5, 129]])),
    torch.uint16: (torch.tensor([[65535, 1, 2], [3, 32768, 200]]), torch.tensor([[2, 65534, 7], [3, 5, 32769]])),
    torch.uint32: (
        torch.tensor([[2**32 - 1, 1, 2], [3, 2**31, 200]]),
        torch.tensor([[2, 2**32 - 2, 7], [3, 5, 2**31]]),
    ),
    torch.uint64: (torch.tensor([[-1, 1, 2], [3, -(2**63), 2**62 + 1]]), torch.tensor([[2, -2, 7], [3, 5, -(2**63)]])),
}

OF_UINT8 = {
    "comparison": lambda x, y: (x < y, x > 100, x == 200, x != y),
    "sum": lambda x, y: (x.sum(), x.sum(1), x.cumsum(1), x.prod(), x.sum(1, dtype=torch.uint8)),
    "extremes": lambda x, y: (x.max(), x.amin(1), *x.max(1), torch.maximum(x, y), x.argmax(1), x.clamp(10, 220)),
    "order": lambda x, y: (x.sort(1)[0], x.topk(2, 1).values, x.argsort(1)),
    "division": lambda x, y: (torch.div(x, y, rounding_mode="trunc"), x // y, x / y, x % y, torch.fmod(x, y)),
    "shifts": lambda x, y: (x >> 1, x << 1, x >> (y % 5), torch.bitwise_left_shift(x, 2)),
    "arithmetic": lambda x, y: (x * y, x + 200, x + y, x - y, 1 - x, -x, x**2, x @ y.t(), x.abs(), torch.relu(x)),
    "bits": lambda x, y: (~x, x & y, x | 7, x ^ y),
    "promotion": lambda x, y: (x + 1.5, x + y.to(torch.int32), x + y.to(torch.int8), x * y.to(torch.float64), x.sqrt()),
    "conversion": lambda x, y: (x.long(), x.half(), x.bool(), x.to(torch.int8), (x.float() / 2).to(torch.uint8)),
    "more conversion": lambda x, y: (x.to(torch.uint16), (x > y).to(torch.uint8), x.long().to(torch.uint8)),
    "choice": lambda x, y: (torch.where(x > y, x, y), x.masked_fill(x > y, 250), torch.where(x > y, x, -1.0)),
    "movement": lambda x, y: (
        x.t(),
        torch.cat([x, y]),
        x[:, [2, 0]],
        x.flip(0),
        *x.split(2, 1),
        x.gather(1, x.long() % 3),
    ),
    "padding": lambda x, y: torch.nn.functional.pad(x, (1, 1), value=200),
    "constants": lambda x, y: (torch.full_like(x, 200), torch.ones_like(x) + x, torch.arange(3, dtype=torch.uint8) + x),
    "mixed cat": lambda x, y: torch.cat([x, y.int()]),
    "logic": lambda x, y: (x.any(), x.all(1), x.logical_not(), torch.logical_and(x, y)),
    "other bitcasts": lambda x, y: (
        x.view(torch.int8) + 1,
        y.float().view(torch.uint8),
        (x > y).view(torch.uint8),
    ),
    "bitcast and back": lambda x, y: x.view(torch.int8).view(torch.uint8) // 2,
    "casts to int8 and float": lambda x, y: (x.to(torch.int8), x.float()),
    "literal": lambda x, y: x + torch.tensor([250, 251, 252], dtype=torch.uint8),
    "index": lambda x, y: torch.arange(256.0)[x.long()],
}
OF_ALL = {
    "movement": lambda x, y: (x.t(), torch.cat([x, y]), x[:, [2, 0]]),
    "arithmetic": lambda x, y: (x * y, x.sum(), x == y, x.eq(1), x.bool(), x & y),
    "conversion": lambda x, y: (x.double(), x.float(), x.long(), x.int(), x.to(torch.uint8), x.to(torch.bfloat16)),
    "back": lambda x, y: ((x.double() * 0.75).to(x.dtype), x.long().to(x.dtype), torch.ones(2).to(x.dtype)),
    "constants": lambda x, y: torch.full((2,), 3, dtype=x.dtype),
}
CASES = [(torch.uint8, name, f) for name, f in OF_UINT8.items()] + [
    (dtype, name, f) for dtype in UNSIGNED for name, f in OF_ALL.items()
]


def program(function, *inputs: Tensor, table=LINALG):
    class Model(torch.nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    return canonicalize(decompose(export(Model(), inputs), table))


def unsigned(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.to(SIGNED_DTYPES[dtype]).view(dtype)


def signless(value: Tensor) -> Tensor:
    return value.view(SIGNED_DTYPES[value.dtype]) if value.dtype in SIGNED_DTYPES else value


@pytest.mark.parametrize("dtype, name, function", CASES, ids=lambda each: None if callable(each) else str(each))
def test_unsigned_integers_in_signless_tensors(dtype, name, function):
    inputs = [unsigned(values, dtype) for values in UNSIGNED[dtype]]
    exported = program(function, *inputs)
    legal = legalize(exported, SIGNLESS)
    dtypes = {e.dtype for node in legal.graph.nodes for e in tree_leaves(node.meta.get("val")) if isinstance(e, Tensor)}
    assert not dtypes & SIGNED_DTYPES.keys()
    constants = [signless(each) for each in exported.constants.values() if isinstance(each, Tensor)]
    results = fx.Interpreter(legal.graph_module).run(*constants, *map(signless, inputs))
    for ours, eager in zip(results, tree_leaves(function(*inputs)), strict=True):
        assert ours.dtype == signless(eager).dtype
        torch.testing.assert_close(ours, signless(eager), rtol=0, atol=0)


def test_given_program_is_unchanged():
    exported = program(lambda x: x + 1, torch.ones(3, dtype=torch.uint8))
    before = [(node.format_node(), str(node.meta["val"])) for node in exported.graph.nodes if "val" in node.meta]
    legalize(exported, SIGNLESS)
    assert [(n.format_node(), str(n.meta["val"])) for n in exported.graph.nodes if "val" in n.meta] == before


def test_output_type_with_unsigned_dtypes_is_unchanged():
    exported = program(lambda x: x + 1, torch.ones(3, dtype=torch.uint8))
    assert legalize(exported, Dtypes("an output")) is exported


def test_uint64_without_a_wider_dtype_is_an_error():
    x = unsigned(UNSIGNED[torch.uint64][0], torch.uint64)
    message = r"pass 'legalize-dtypes'.*\n.*sort.*torch\.uint64.*int64 or float64"
    with pytest.raises(UnsupportedProgramError, match=message):
        legalize(program(lambda x: x.sort(1), x), SIGNLESS)


def test_every_tensor_of_an_unsupported_dtype_is_named():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("phases", torch.ones(3, dtype=torch.complex64))

        def forward(self, x, y):
            return x * self.phases + 1, y * 2j

    lacking = Dtypes("an output", lacks=frozenset((torch.complex64,)))
    with pytest.raises(UnsupportedProgramError) as raised:
        legalize(export(Model(), (torch.ones(3, dtype=torch.complex64), torch.ones(3))), lacking)
    subjects = [unsupported.subject.split(" ")[0] for unsupported in raised.value.unsupported_nodes]
    assert subjects == ["b_phases", "x", "mul_1"]  # and not what is computed from them
    assert "'phases' is a tensor of torch.complex64, which an output does not have" in str(raised.value)
    assert __file__ in str(raised.value)


def test_storage_only_dtype_is_not_computed_with():
    moving = Dtypes("an output", moves=frozenset((torch.complex64,)), computes=frozenset((aten.mul.Tensor,)))
    x = torch.ones(2, 3, dtype=torch.complex64)
    legalize(program(lambda x: (x * x).t(), x), moving)
    with pytest.raises(UnsupportedProgramError, match=r"computes with tensors of torch\.complex64"):
        legalize(program(lambda x: x.sqrt(), x), moving)
