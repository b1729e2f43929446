"""`DynamoCompiler`, the interface of Buddy Compiler."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor.decomposition import decompositions as inductor_decompositions
from torch.utils import _pytree as pytree
from torch_mlir.dialects import tosa as tosa_dialect

from fx_importer import ExportError, UnsupportedProgramError, UsageError
from fx_importer.dynamo import DynamoCompiler
from fx_importer.dynamo.ops import linalg, math, tosa
from fx_importer.dynamo.ops.registry import BuiltIn

prims = torch.ops.prims
aten = torch.ops.aten


@torch.library.custom_op("compiler::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


TWICE = torch.ops.compiler.twice.default


@pytest.fixture
def registries():
    """Restore the registries after each test."""
    yield
    for registry in (tosa.ops_registry, linalg.ops_registry, math.ops_registry):
        registry.restore()


def imported(fn: Any, *args: Any, **options: Any) -> str:
    """Import ``fn``, compare its results with eager, and return the module's text."""
    compiler = DynamoCompiler(aot_autograd_decomposition=inductor_decompositions, **options)
    module, params = compiler.importer(fn, *args)
    assert compiler.lowered is not None
    found = compiler.lowered.caller(backend="jit")(*params, *args)
    with torch.no_grad():
        expected = fn(*args)
    torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-4)
    return str(module)


def foo(x, y):
    return x * y + x


def test_the_module_of_foo():
    compiler = DynamoCompiler(
        func_name="forward", primary_registry=tosa.ops_registry, aot_autograd_decomposition=inductor_decompositions
    )
    x, y = torch.randn(10), torch.randn(10)
    module, params = compiler.importer(foo, x, y)
    (function,) = module.body.operations
    assert params == []
    assert function.name.value == "forward"
    first, second = function.entry_block.arguments
    constant, product, total, _ = function.entry_block.operations
    assert [each.operation.name for each in (constant, product, total)] == ["tosa.const", "tosa.mul", "tosa.add"]
    assert list(product.operands) == [first, second, constant.result]
    assert list(total.operands) == [product.result, first]
    assert compiler.lowered is not None
    torch.testing.assert_close(compiler.lowered.run(x, y)[0], foo(x, y))


def test_parameters_come_first():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.BatchNorm1d(3)).eval()
    compiler = DynamoCompiler()
    x = torch.randn(2, 4)
    module, params = compiler.importer(model, x)
    assert {id(each) for each in params} <= {id(each) for each in [*model.parameters(), *model.buffers()]}
    assert len(params) == 6
    assert str(module.body.operations[0].type.inputs[6]) == "tensor<2x4xf32>"
    assert compiler.lowered is not None
    torch.testing.assert_close(compiler.lowered.run(*params, x)[0], model(x), rtol=1e-4, atol=1e-4)


REGISTRIES = (tosa.ops_registry, linalg.ops_registry, math.ops_registry)


@pytest.mark.parametrize("primary", REGISTRIES, ids=lambda each: each.name)
def test_each_registry(primary):
    text = imported(lambda x, y: torch.exp(x) + y.tanh(), torch.randn(3, 4), torch.randn(4), primary_registry=primary)
    assert ("tosa.exp" in text) == (primary is tosa.ops_registry)
    assert ("linalg.generic" in text) == (primary is not tosa.ops_registry)
    assert ("math.exp %arg" in text) == (primary is math.ops_registry)


def test_operators_unsupported_by_the_primary_registry_use_the_others():
    text = imported(lambda x, y: (y.sin() + 1).float() * x, torch.randn(3, 4), torch.randn(4, dtype=torch.float64))
    assert "tosa.mul" in text
    assert "math.sin" in text
    assert text.count("func.func") == 1


COVERED = {
    "add": lambda x: x + x,
    "mul": lambda x: x * x,
    "sub": lambda x: x - 1,
    "sum": lambda x: x.sum(1),
    "tanh": torch.tanh,
    "amax": lambda x: x.amax(1),
    "rsqrt": lambda x: x.abs().rsqrt(),
    "bmm": lambda x: torch.bmm(x.view(2, 3, 4), x.view(2, 4, 3)),
    "clone": lambda x: x.clone(),
    "div": lambda x: x / 3,
    "exp": torch.exp,
    "expand": lambda x: x[:, :1].expand(6, 4),
    "var_mean": lambda x: torch.cat(torch.var_mean(x, 1)),
    "addmm": lambda x: torch.addmm(x[0, :3], x, x.view(4, 6)[:, :3]),
    "reshape": lambda x: x.reshape(3, 8),
    "view": lambda x: x.view(2, 12),
    "select": lambda x: x.select(0, 2),
    "slice": lambda x: x[1:3],
    "embedding": lambda x: nn.functional.embedding(torch.tensor([1, 0, 3]), x),
    "convert_element_type": lambda x: x.to(torch.int32),
    "permute": lambda x: x.view(2, 3, 4).permute(2, 0, 1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "t": lambda x: x.t(),
    "transpose": lambda x: x.view(2, 3, 4).transpose(0, 2),
    "max_pool2d": lambda x: nn.functional.max_pool2d(x.view(1, 1, 6, 4), 2),
    "conv2d": lambda x: nn.functional.conv2d(x.view(1, 1, 6, 4), x.view(4, 1, 2, 3)),
    "relu": torch.relu,
    "iota": lambda x: torch.arange(4) + x,
    "sigmoid": torch.sigmoid,
    "reciprocal": torch.reciprocal,
    "mean": lambda x: x.mean(1),
}


@pytest.mark.slow_rows(
    "^max_pool2d$",
    "^conv2d$",
    "^var_mean$",
    "^addmm$",
    "^mean$",
    "^embedding$",
    "^sigmoid$",
    "^iota$",
    "^add$",
    "^bmm$",
    "^reciprocal$",
    "^relu$",
    "^sub$",
    "^convert_element_type$",
    "^mul$",
    "^expand$",
    "^exp$",
    "^sum$",
    "^permute$",
    "^unsqueeze$",
)
@pytest.mark.parametrize("name", COVERED)
def test_tosa_registry_covers(name: str):
    text = imported(COVERED[name], torch.linspace(0.5, 3, 24).reshape(6, 4))
    assert not {"linalg", "torch"} & {word.partition(".")[0] for word in text.split()}
    if name == "permute":
        assert "tosa.transpose" in text
        assert "-> tensor<4x2x3xf32>" in text


def test_registry_is_a_mapping():
    registry = tosa.ops_registry
    names = ("add.Tensor", "aten.bmm", aten.relu.default, "prims.iota", prims.convert_element_type.default, "conv2d")
    assert all(each in registry for each in names)
    assert "aten.nothing" not in registry
    assert TWICE not in registry
    assert len(registry) == len(list(registry)) > 500
    with pytest.raises(KeyError):
        registry["compiler.twice"]


@pytest.mark.usefixtures("registries")
def test_user_rule():
    calls: list[Any] = []

    def rule(node, symbol_table):
        x = symbol_table[str(node.args[0]), 0]
        calls.append(node.target)
        assert symbol_table.get((node.args[0], 1)) is None
        assert (str(node.args[0]), 0) in set(symbol_table)
        return tosa_dialect.AddOp(x.type, x, x)

    tosa.ops_registry[TWICE] = rule
    assert tosa.ops_registry["compiler.twice.default"] is rule
    assert "tosa.add %arg0, %arg0" in imported(lambda x: torch.relu(twice(x)), torch.randn(3, 4))
    assert calls == [TWICE]

    built_in = tosa.ops_registry["mul.Tensor"]
    assert isinstance(built_in, BuiltIn)
    tosa.ops_registry["mul.Tensor"] = lambda node, table: built_in(node, table)
    assert "tosa.mul" in imported(foo, torch.randn(10), torch.randn(10))
    del tosa.ops_registry[TWICE]
    assert TWICE not in tosa.ops_registry


@pytest.mark.usefixtures("registries")
def test_user_rule_in_a_secondary_registry():
    linalg.ops_registry[TWICE] = lambda node, table: table.emit.add(table[node.args[0], 0], table[node.args[0], 0])
    text = imported(lambda x: torch.relu(twice(x)), torch.randn(3, 4))
    assert "arith.addf" in text
    assert "tosa.clamp" in text


@pytest.mark.usefixtures("registries")
def test_usage_errors():
    def branches(x):
        print("a break")
        return x + 1

    with pytest.raises(ExportError, match="TorchDynamo cannot make one graph of branches"):
        DynamoCompiler().importer(branches, torch.ones(2))
    with pytest.raises(UsageError, match="expected a function or an nn.Module, not int"):
        DynamoCompiler().importer(3)  # pyright: ignore
    with pytest.raises(ExportError, match="computes nothing with tensors"):
        DynamoCompiler().importer(lambda: 1)
    with pytest.raises(UsageError, match="primary_registry is the ops_registry of .* and not 'tosa'"):
        DynamoCompiler(primary_registry="tosa")  # pyright: ignore
    with pytest.raises(UsageError, match=r"tosa.ops_registry: 'nothing' is not an operator, such as torch.ops"):
        tosa.ops_registry["nothing"] = foo
    with pytest.raises(UsageError, match="the lowering of add.Tensor must be a function, not 3"):
        tosa.ops_registry["add.Tensor"] = 3  # pyright: ignore
    tosa.ops_registry["add.Tensor"] = lambda node, table: None
    with pytest.raises(UnsupportedProgramError, match=r"the rule .*<lambda> .* returned nothing, and not one value"):
        DynamoCompiler().importer(foo, torch.ones(2), torch.ones(2))


def mutates(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    x.add_(y)
    return {"sum": x + y, "given": (y, x), "number": 3}


def test_results_are_those_of_the_function_and_then_new_state():
    """In the order of the function: inputs that are returned, views, one tensor twice; new state comes last."""
    compiler = DynamoCompiler()
    for fn, names in (
        (lambda x: (x, x + 1), ("result[0]", "result[1]")),
        (lambda x: {"b": x.t(), "a": [x + 1, x]}, ("result['b']", "result['a'][0]", "result['a'][1]")),
    ):
        x = torch.randn(2, 3)
        compiler.importer(fn, x)
        assert compiler.results == names
        assert compiler.lowered is not None
        expected = [each for each in pytree.tree_leaves(fn(x)) if isinstance(each, torch.Tensor)]
        torch.testing.assert_close(compiler.lowered.caller(backend="jit")(x), expected)

    x, y, z = torch.randn(3), torch.randn(2), torch.randn(4)  # of which y is read first, x returned, and z not used
    module, _ = compiler.importer(lambda x, y, z: (x, y.sin(), y), x, y, z)
    assert [str(each) for each in module.body.operations[0].type.inputs] == [f"tensor<{n}xf32>" for n in (3, 2, 4)]
    assert compiler.lowered is not None
    torch.testing.assert_close(compiler.lowered.caller(backend="jit")(x, y, z), [x, y.sin(), y])
    compiler.importer(torch.linalg.inv, torch.eye(2) * 4)  # with an effect
    torch.testing.assert_close(compiler.lowered.caller(backend="jit")(torch.eye(2)), [torch.eye(2)])

    x, y = torch.ones(2, 3), torch.full((3,), 2.0)
    module, params = compiler.importer(mutates, x.clone(), y)
    assert params == []
    types = [str(each) for each in module.body.operations[0].type.results]
    assert types == ["tensor<2x3xf32>", "tensor<3xf32>", "tensor<2x3xf32>", "tensor<2x3xf32>"]
    assert compiler.results[:3] == ("result['sum']", "result['given'][0]", "result['given'][1]")
    assert compiler.lowered is not None
    total, _, written = compiler.lowered.caller(backend="jit")(x, y)
    torch.testing.assert_close((total, written, x), (torch.full((2, 3), 5.0), *[torch.full((2, 3), 3.0)] * 2))


@pytest.mark.parametrize("marked", [True, False])
def test_dynamic_sizes(marked: bool):
    x = torch.ones(2, 3)
    if marked:
        torch._dynamo.mark_dynamic(x, 0)
    compiler = DynamoCompiler(dynamic=None if marked else True)
    module, _ = compiler.importer(lambda x: (x.sin(), x), x)
    assert str(module.body.operations[0].type.inputs[0]) == ("tensor<?x3xf32>" if marked else "tensor<?x?xf32>")
    assert compiler.lowered is not None
    torch.testing.assert_close(compiler.lowered.caller(backend="jit")(x[:1].repeat(5, 1))[0], torch.ones(5, 3).sin())


@pytest.mark.usefixtures("registries")
def test_names_and_dictionaries_of_buddy_compiler(capsys: pytest.CaptureFixture[str]):
    def subtract(node, symbol_table):
        x, y = (symbol_table.get((str(arg), 0)) for arg in node.args)
        return tosa_dialect.SubOp(x.type, x, y)

    assert all(each in tosa.ops_registry for each in ("AddMMOp", "MaxPool2dWithIndicesOp", "ConvertElementTypeOp"))
    assert "NoSuchOp" not in tosa.ops_registry
    for registry in ({"AddOp": subtract}, {**tosa.ops_registry, "AddOp": subtract}):
        compiler = DynamoCompiler(primary_registry=registry, verbose=True)
        module, _ = compiler.importer(torch.add, torch.ones(2), torch.ones(2))
        assert "tosa.sub" in str(module)
        assert "tosa.sub" in capsys.readouterr().out
    linear = DynamoCompiler(primary_registry=dict(linalg.ops_registry))
    assert "linalg.generic" in str(linear.importer(torch.exp, torch.ones(2))[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dynamo_bert", "dynamo_llama"])
def test_example(name: str, capsys: pytest.CaptureFixture[str]):
    module, params = importlib.import_module(f"examples.{name}").main()
    assert str(module).count("func.func") == 1
    assert f"{len(params)} parameters; results: result['l" in capsys.readouterr().out


def test_a_tensor_given_twice_is_two_arguments():
    compiler = DynamoCompiler()
    x, y = torch.randn(3), torch.randn(3)
    compiler.importer(lambda a, b, c: a * 2 + b * c, x, x, c=x)
    assert compiler.lowered is not None
    torch.testing.assert_close(compiler.lowered.run(x, y, x + 1)[0], x * 2 + y * (x + 1))
