import operator

import pytest
import torch
import torch.nn.functional as F
from torch._ops import OpOverload
from torch.export import Dim, ExportedProgram, export
from torch.testing import assert_close
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_decomp_util import get_decomposition_table as get_peers_table

from fx_importer.decompositions import BASE, LINALG, STABLEHLO, TORCH, TOSA, decompose
from fx_importer.errors import UsageError
from testing.zoo import ZOO

aten = torch.ops.aten
TABLES = {"base": BASE, "torch": TORCH, "tosa": TOSA, "linalg": LINALG, "stablehlo": STABLEHLO}
SMALL = [name for name, model in ZOO.items() if model.small]


def operators(program: ExportedProgram) -> list[object]:
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


def exported(function, *inputs: torch.Tensor, dynamic: bool = False) -> ExportedProgram:
    class Model(torch.nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    shapes = (tuple({0: Dim("batch")} for _ in inputs),) if dynamic else None
    return export(Model(), inputs, dynamic_shapes=shapes, strict=False)


def test_empty_table_decomposes_nothing() -> None:
    program = exported(lambda x: F.silu(x).view(-1), torch.ones(2, 3))
    assert decompose(program, {}) is program


def test_rule_replaces_its_operator() -> None:
    program = exported(F.silu, torch.ones(2))
    assert operators(decompose(program, {aten.silu.default: lambda x: x * x.sigmoid()})) == [
        aten.sigmoid.default,
        aten.mul.Tensor,
    ]
    assert operators(program) == [aten.silu.default]


def test_overload_key_precedes_packet_key() -> None:
    program = exported(lambda x: (x > 0, x > x), torch.ones(2))
    table = {aten.gt.Tensor: lambda a, b: torch.lt(b, a), aten.gt: lambda a, b: torch.ge(a, b)}
    assert operators(decompose(program, table)) == [aten.ge.Scalar, aten.lt.Tensor]


@pytest.mark.parametrize("table", [{"aten.silu": F.silu}, {aten.silu.default: None}])
def test_invalid_table(table) -> None:
    with pytest.raises(UsageError, match="decomposition"):
        decompose(exported(F.silu, torch.ones(2)), table)


@pytest.mark.parametrize("dynamic", [False, True])
def test_view_of_a_decomposition_with_other_strides(dynamic: bool) -> None:
    # Eager's attention returns the layout that this view needs; a decomposed one may return another.
    def attend(x):
        heads = x.view(x.shape[0], 5, 4, 8).transpose(1, 2)
        joined = F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2)
        return joined.view(-1, 32)

    x = torch.randn(2, 5, 32)
    program = exported(attend, x, dynamic=dynamic)
    nodes = [node.format_node() for node in program.graph.nodes]
    for batch in (x, torch.randn(3, 5, 32)) if dynamic else (x,):
        assert_close(decompose(program, BASE).module()(batch), attend(batch))
    assert [node.format_node() for node in program.graph.nodes] == nodes


def test_write_through_a_view() -> None:
    def write(x):
        x = x.transpose(0, 1).contiguous()
        x.view(-1)[1:3].mul_(10)
        return x.view(6) + 1

    x = torch.arange(6.0).reshape(2, 3)
    decomposed = decompose(exported(write, x), BASE)
    assert_close(decomposed.module()(x), write(x))
    assert aten.mul_.Tensor not in operators(decomposed)


def test_view_in_a_branch_is_decomposed() -> None:
    def choose(x):
        return torch.cond(x.sum() > 0, lambda x: F.silu(x).view(-1), lambda x: x.view(-1) + 1, (x,))

    x = torch.randn(2, 3)
    decomposed = decompose(exported(choose, x), BASE)
    for each in (x.abs(), -x.abs()):
        assert_close(decomposed.module()(each), choose(each))
    branches = [module for module in decomposed.graph_module.children() if isinstance(module, torch.fx.GraphModule)]
    assert len(branches) == 2
    assert not any(branch.graph.find_nodes(op="call_function", target=aten.silu.default) for branch in branches)


DIALECT = {
    op.OPERATION_NAME.removeprefix("torch.")
    for op in vars(torch_dialect).values()
    if isinstance(op, type) and hasattr(op, "OPERATION_NAME")
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_torch_mlir_decompositions_are_covered_by_tables_or_dialect(table) -> None:
    theirs = [key for key in get_peers_table() if isinstance(key, OpOverload) and not key._schema.is_mutable]
    theirs = [key for key in theirs if key.namespace in ("aten", "prims")]  # other imports register more
    assert not [key for key in theirs if key not in table and key.name().replace("::", ".") not in DIALECT]


@pytest.mark.slow_rows(
    "(?<!bert_small)(?<!lstm)-stablehlo",
    "(mamba|swin)_small-linalg",
    "^t5_encoder_tiny-linalg$",
    "^gru-linalg$",
    "^llama_small-linalg$",
    "^unet-linalg$",
    "^lstm-stablehlo$",
    "^gpt2_small-linalg$",
    "^resnet_small-linalg$",
    "^lstm-linalg$",
    "^(whisper_encoder_small-linalg|vit_small-linalg)$",
)
@pytest.mark.parametrize("table", ["linalg", "stablehlo"])
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.filterwarnings("ignore:The tensor attributes .* were assigned during export:UserWarning")
def test_decomposed_models_agree_with_eager_and_are_aten(name: str, table: str) -> None:
    model, args, kwargs = ZOO[name].build()
    decomposed = decompose(export(model, args, kwargs, strict=False), TABLES[table])
    assert_close(decomposed.module()(*args, **kwargs), model(*args, **kwargs), rtol=1e-4, atol=1e-4)
    for target in set(operators(decomposed)) - {operator.getitem, torch.ops.prims.convert_element_type.default}:
        assert isinstance(target, OpOverload), target
        assert target.namespace == "aten", target
