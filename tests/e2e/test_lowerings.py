"""Lowerings of single operators by the user, in each form and for each output type, against eager."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import fx_importer.dynamo
from fx_importer import (
    Lowerings,
    NoMatch,
    StageFailed,
    UnsupportedProgramError,
    UsageError,
    decomposes,
    explain,
    external,
    lower,
    lowers,
)
from fx_importer.lowerings import TargetEmitter

TARGETS = ("linalg", "tosa", "stablehlo")
library = torch.library.Library("lowerings", "DEF")


def operator(schema: str, eager: Callable[..., Any]) -> Any:
    """Define an operator whose kernel and fake implementation are ``eager``."""
    name = schema.partition("(")[0]
    library.define(schema)
    library.impl(name, eager, "CompositeExplicitAutograd")
    return getattr(torch.ops.lowerings, name).default


def shifted(x, by=None, *, scale: float = 2.0):
    return x * scale if by is None else x * scale + by


twice = operator("twice(Tensor x) -> Tensor", lambda x: x * 2)
affine = operator("affine(Tensor x, Tensor? by=None, *, float scale=2.0) -> Tensor", shifted)
total = operator(
    "total(Tensor[] xs, int[] weights) -> Tensor", lambda xs, ws: sum(x * w for x, w in zip(xs, ws, strict=True))
)
half_and_sum = operator("half_and_sum(Tensor x) -> (Tensor, Tensor)", lambda x: (x / 2, x.sum(1)))
pieces = operator("pieces(Tensor x) -> Tensor[]", lambda x: [x + 1, x - 1])
scaled = operator("scaled(Tensor x, SymInt count) -> Tensor", lambda x, count: x * count)


def emit_total(emit: TargetEmitter, xs, weights):
    result = emit.mul(xs[0], weights[0])
    for x, weight in zip(xs[1:], weights[1:], strict=True):
        result = emit.add(result, emit.mul(x, weight))
    return result


@dataclass(frozen=True)
class Row:
    operator: Any
    model: Callable[..., Any]
    inputs: tuple[Any, ...]
    decomposition: Callable[..., Any]
    builder: Callable[..., Any]


x, y = torch.linspace(-2, 2, 12).reshape(3, 4), torch.linspace(0.5, 3, 12).reshape(3, 4)
ROWS = {
    "plain": Row(twice, lambda x: twice(torch.relu(x)) + 1, (x,), lambda x: x + x, lambda emit, x: emit.add(x, x)),
    "optional": Row(
        affine,
        lambda x, y: affine(x) + affine(x, y, scale=0.5),
        (x, y),
        shifted,
        lambda emit, x, by, *, scale: emit.mul(x, scale) if by is None else emit.add(emit.mul(x, scale), by),
    ),
    "list": Row(
        total, lambda x, y: total([x, y, x], [1, 2, 3]).sin(), (x, y), lambda xs, ws: xs[0] * 4 + xs[1] * 2, emit_total
    ),
    "results": Row(
        half_and_sum,
        lambda x: half_and_sum(x)[0] + half_and_sum(x + 1)[1].unsqueeze(1),
        (x,),
        lambda x: (x * 0.5, x.sum(1)),
        lambda emit, x: (emit.mul(x, 0.5), emit.sum(x, [1])),
    ),
    "list_of_results": Row(
        pieces,
        lambda x: pieces(x)[0] * pieces(x + 1)[1],
        (x,),
        lambda x: [x + 1, x - 1],
        lambda emit, x: [emit.add(x, 1.0), emit.sub(x, 1.0)],
    ),
    "number": Row(
        scaled,
        lambda x: scaled(x, x.shape[0]),
        (x,),
        lambda x, count: x * count,
        lambda emit, x, count: emit.mul(x, emit.cast(count, "f32") if not isinstance(count, int) else count),
    ),
}
FORMS: dict[str, Callable[[Row], Any]] = {
    "decomposition": lambda row: decomposes(row.operator)(row.decomposition),
    "builder": lambda row: lowers(row.operator, into=TARGETS)(row.builder),
    "external": lambda row: external(row.operator, symbol="npu_function"),
    "stub": lambda row: external(row.operator, symbol="npu_function")(row.decomposition),
}


@pytest.mark.slow_rows(
    "(number|list|optional|list_of_results)-\\w+-(linalg|stablehlo)-static",
    "(number|optional|list|list_of_results)-(external|stub|builder)-\\w+-dynamic",
    "^results-external-stablehlo-dynamic$",
    "^plain-decomposition-tosa-static$",
    "^optional-external-tosa-static$",
    "^results-builder-tosa-dynamic$",
    "^results-external-tosa-dynamic$",
    "^results-decomposition-tosa-dynamic$",
    "^results-external-linalg-dynamic$",
    "^results-stub-tosa-dynamic$",
    "^optional-decomposition-tosa-dynamic$",
    "^list-decomposition-tosa-dynamic$",
    "^optional-decomposition-stablehlo-dynamic$",
    "^results-builder-stablehlo-dynamic$",
    "^plain-stub-tosa-dynamic$",
    "^results-stub-linalg-dynamic$",
    "^results-decomposition-stablehlo-dynamic$",
    "^results-builder-tosa-static$",
    "^number-decomposition-tosa-dynamic$",
    "^plain-external-linalg-dynamic$",
    "^plain-decomposition-tosa-dynamic$",
    "^plain-builder-tosa-dynamic$",
    "^list_of_results-decomposition-tosa-dynamic$",
    "^optional-stub-tosa-static$",
    "^list-decomposition-tosa-static$",
    "^optional-decomposition-tosa-static$",
    "^plain-stub-linalg-dynamic$",
    "^results-decomposition-linalg-dynamic$",
    "^optional-builder-tosa-static$",
    "^list-builder-tosa-static$",
    "^results-external-linalg-static$",
    "^results-external-tosa-static$",
    "^plain-stub-stablehlo-dynamic$",
    "^list-decomposition-stablehlo-dynamic$",
    "^results-decomposition-tosa-static$",
    "^results-stub-stablehlo-dynamic$",
    "^results-stub-linalg-static$",
    "^results-external-stablehlo-static$",
    "^results-builder-linalg-dynamic$",
    "^list_of_results-decomposition-stablehlo-dynamic$",
    "^results-builder-stablehlo-static$",
    "^list-decomposition-linalg-dynamic$",
    "^number-decomposition-tosa-static$",
    "^plain-external-tosa-dynamic$",
    "^plain-builder-stablehlo-dynamic$",
    "^optional-decomposition-linalg-dynamic$",
    "^number-builder-tosa-static$",
    "^(results-stub|list-external|list_of_results-stub)-",
)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ROWS)
def test_lowerings(name: str, form: str, target: str, dynamic: bool):
    row = ROWS[name]
    size = torch.export.Dim("rows", min=2, max=20)
    shapes = tuple({0: size} for _ in row.inputs) if dynamic else None
    lowered = lower(row.model, *row.inputs, output_type=target, dynamic_shapes=shapes, lowerings=FORMS[form](row))
    assert bool(lowered.operator_stubs) == (form in ("external", "stub"))
    assert {stub.operator for stub in lowered.operator_stubs.values()} <= {str(row.operator)}
    inputs = tuple(torch.cat([each, each + 0.5]) for each in row.inputs) if dynamic else row.inputs
    caller = lowered.caller(backend="jit" if lowered.operator_stubs else None)
    torch.testing.assert_close(caller(*inputs), row.model(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_user_lowering_precedes_built_in_ones(target: str):
    @lowers(torch.ops.aten.add.Tensor, into=TARGETS)
    def add(emit: TargetEmitter, x, y, *, alpha):
        return emit.sub(x, emit.mul(emit.neg(y), alpha))

    def model(x, y):
        return torch.add(x, y, alpha=2)

    lowered = lower(model, x, y, output_type=target, lowerings=add)
    assert "subtract" in str(lowered.module) or ".sub" in str(lowered.module)
    torch.testing.assert_close(lowered.run(x, y), model(x, y))


def test_stub_is_called():
    calls: list[torch.Tensor] = []

    @external(twice, symbol="npu_twice")
    def stub(x):
        calls.append(x)
        return x * 2

    lowered = lower(lambda x: twice(x), x, output_type="raw", lowerings=stub)
    assert "func.func private @npu_twice(!torch.vtensor<[3,4],f32>)" in str(lowered.module)
    lowered = lower(lambda x: twice(x) + twice(x[0]), x, output_type="linalg", lowerings=stub)
    assert [*lowered.operator_stubs] == ["npu_twice", "npu_twice_1"]
    assert lowered.verify(x)
    assert len(calls) == 2


def test_no_match_falls_through_to_the_next_registry_and_built_in_ones():
    calls: list[str] = []

    def rule(name: str, ok: bool):
        @lowers(twice, torch.ops.aten.relu.default, into="linalg")
        def declines(emit: TargetEmitter, x):
            calls.append(name)
            if not ok or len(emit.shape(x)) != 2:
                raise NoMatch(f"{name} takes matrices")
            return emit.add(x, x)

        return declines

    lower(lambda x: twice(x.relu()), x, output_type="linalg", lowerings=[rule("first", True)])
    assert calls == ["first", "first"]
    calls.clear()
    lowered = lower(
        lambda x: twice(x), x, output_type="linalg", lowerings=[Lowerings([rule("b", True)]), rule("a", False)]
    )
    assert calls == ["a", "b"]
    assert lowered.verify(x)
    calls.clear()
    lowered = lower(lambda x: x.relu(), x[0], output_type="linalg", lowerings=rule("a", True))
    assert lowered.verify(x[0])


def error_of(rule: Any, model: Callable[..., Any] = lambda x: twice(x), **options: Any) -> str:
    with pytest.raises(UnsupportedProgramError) as raised:
        lower(model, x, output_type="linalg", lowerings=rule, **options)
    return str(raised.value)


def into_linalg(function: Callable[..., Any]) -> Any:
    return lowers(twice, into="linalg")(function)


@pytest.mark.parametrize(
    "function, expected",
    [
        (lambda emit, x: emit.sum(x, [0]), r"returned tensor<4xf32>, but .*twice.* returns tensor<3x4xf32> here"),
        (lambda emit, x: emit.cast(x, "f16"), r"returned tensor<3x4xf16>, but .*returns tensor<3x4xf32> here"),
        (lambda emit, x: (x, x), "returned 2 values, and not one value"),
        (lambda emit, x: None, "returned nothing, and not one value"),
        (lambda emit, x: 1 / 0, r"fails at line \d+: ZeroDivisionError"),
        (lambda emit, x, y: x, "fails.*TypeError: .*missing 1 required positional argument: 'y'"),
        (lambda emit, x: emit.op("tosa.add", [x.type], [x]).result, r"fails at line \d+: .*expected 2 operands"),
        (lambda emit, x: emit.op("scf.execute_region", [x.type], regions=1).result, "fails: .*needs .* one block"),
        (lambda emit, x: emit.inline("nothing", x)[0], r"fails at line \d+: the text is not MLIR"),
        (lambda emit, x: emit.add(x, emit.cast(x, "f64")), "operands of f32 and f64: cast one of them"),
    ],
    ids=["shape", "dtype", "two", "none", "raises", "arguments", "invalid", "region", "text", "mixed"],
)
def test_invalid_results_of_lowerings(function: Callable[..., Any], expected: str):
    message = error_of(into_linalg(function))
    assert re.search(expected, message, re.DOTALL), message
    assert re.search(rf"twice.*the rule <lambda> \({re.escape(__file__)}:\d+\)", message), message


def test_all_errors_are_listed():
    message = error_of(into_linalg(lambda emit, x: None), lambda x: twice(x) + twice(x + 1))
    assert message.startswith("2 things in the program cannot be imported:")


def test_entry_point_of_a_package(monkeypatch: pytest.MonkeyPatch, tmp_path):
    (tmp_path / "npu_rules.py").write_text(
        "import torch\nfrom fx_importer import Lowerings, lowers\n"
        "@lowers(torch.ops.lowerings.twice.default, into='linalg')\n"
        "def twice(emit, x):\n    return emit.add(x, x)\n"
        "rules = Lowerings([twice])\n"
    )
    info = tmp_path / "npu_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: npu-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fx_importer.lowerings]\nnpu = npu_rules:rules\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("npu", "npu_rules:rules", ["npu"]):
        assert lower(lambda x: twice(x), x, output_type="linalg", lowerings=name).verify(x)
    with pytest.raises(UsageError, match="no package offers 'gpu' .*: there are npu; 'package.module:name'"):
        lower(twice, x, output_type="linalg", lowerings="gpu")


def test_invalid_lowerings():
    rule = into_linalg(lambda emit, x: x)
    with pytest.raises(
        UsageError,
        match=r"lowerings\.twice\.default has two rules for linalg-on-tensors, .*<lambda> .* and .*<lambda>",
    ):
        lower(twice, x, output_type="linalg", lowerings=[rule, into_linalg(lambda emit, x: x)])
    with pytest.raises(UsageError, match="is not a rule; label a function"):
        lower(twice, x, output_type="linalg", lowerings=[lambda emit, x: x])  # pyright: ignore
    with pytest.raises(UsageError, match="no package offers 'npu' in the entry points 'fx_importer.lowerings'"):
        lower(twice, x, output_type="linalg", lowerings="npu")
    with pytest.raises(UsageError, match="'nowhere:rules' cannot be imported: ModuleNotFoundError"):
        lower(twice, x, output_type="linalg", lowerings="nowhere:rules")
    with pytest.raises(UsageError, match="a rule lowers into linalg-on-tensors, tosa, stablehlo, and not into raw"):
        lowers(twice, into="raw")
    with pytest.raises(UsageError, match="names no operator"):
        lowers(into="tosa")
    with pytest.raises(UsageError, match="names no operator"):
        external(symbol="npu")
    with pytest.raises(UsageError, match="symbol='a b' is not the name of a function"):
        external(twice, symbol="a b")


def test_explain_uses_lowerings():
    rule = into_linalg(lambda emit, x: emit.add(x, x))
    assert explain(lambda x: twice(x), x, output_types=["linalg"], lowerings=rule)
    assert not explain(lambda x: twice(x), x, output_types=["linalg"])


def test_unmatched_lowering_is_named():
    @lowers(twice, into="linalg")
    def never(emit: TargetEmitter, x):
        raise NoMatch("it is Monday")

    with pytest.raises(StageFailed, match="(?s)lowerings.twice.default.*never .*does not match: it is Monday"):
        lower(lambda x: twice(x), x, output_type="linalg", lowerings=never)


def test_compiled_graphs_depend_on_lowerings():
    def by(factor: float) -> Any:
        return into_linalg(lambda emit, x: emit.mul(x, factor))

    for factor in (2.0, 3.0):
        options: dict[str, Any] = {"lowerings": [by(factor)]}
        compiled = torch.compile(lambda x: twice(x), backend=fx_importer.dynamo.backend, options=options)
        torch.testing.assert_close(compiled(x), x * factor)
