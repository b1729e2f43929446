"""Contracts: the checked legality of an output type, and its diagnostics."""

import warnings

import pytest

from fx_importer import ContractWarning, OutputType, StageFailed, UsageError
from fx_importer.diagnostics.trace import Trace
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.options import Contract
from fx_importer.pipelines.contracts import contract
from fx_importer.pipelines.pipeline_parser import parse_steps
from fx_importer.pipelines.runner import run_stage
from fx_importer.pipelines.stage import Stage
from fx_importer.targets import target_for

LINALG, TOSA, STABLEHLO = OutputType.LINALG_ON_TENSORS, OutputType.TOSA, OutputType.STABLEHLO
TORCH = OutputType.TORCH

FOREIGN = """
func.func @main(%x: tensor<2xi32>) -> tensor<2xi32> {
  %0 = arith.addi %x, %x : tensor<2xi32> loc("MODEL":1:1)
  %1 = arith.addi %0, %x : tensor<2xi32> loc("MODEL":2:1)
  %2 = "tosa.identity"(%1) : (tensor<2xi32>) -> tensor<2xi32> loc("MODEL":2:1)
  return %2 : tensor<2xi32>
}
"""
SIZES = """
func.func @main(%x: tensor<{n}xi32>) -> tensor<i32> {{
  %c0 = arith.constant 0 : index
  %0 = tensor.extract %x[%c0] : tensor<{n}xi32>
  %1 = tensor.from_elements %0 : tensor<i32>
  return %1 : tensor<i32>
}}
"""


def stage_of(output_type: OutputType, policy: Contract) -> Stage:
    rules = target_for(output_type).contract
    assert rules is not None
    return contract(rules, policy)


def check(output_type: OutputType, text: str, policy: Contract = Contract.ERROR) -> None:
    module, stage = ir.Module.parse(text, new_context()), stage_of(output_type, policy)
    before = str(module)
    with Trace().stage(stage.name):
        run_stage(stage, module)
    assert str(module) == before


@pytest.fixture
def illegal_module(tmp_path) -> str:
    model = tmp_path / "model.py"
    model.write_text("y = x + x\nreturn identity(y + x)\n")
    return FOREIGN.replace("MODEL", str(model))


@pytest.mark.parametrize(
    "output_type, sentences",
    [
        (LINALG, ["error: linalg-on-tensors may not hold 'tosa.identity': its dialects are "]),
        (TOSA, ["error: tosa may not hold 'arith.addi', 2 times: its dialects are func, tosa"]),
        (
            STABLEHLO,
            [
                "error: stablehlo may not hold 'arith.addi', 2 times: its dialects are func, stablehlo",
                "error: stablehlo may not hold 'tosa.identity': its dialects are func, stablehlo",
            ],
        ),
    ],
    ids=["linalg", "tosa", "stablehlo"],
)
def test_illegal_operations_are_listed_with_their_lines(output_type, sentences, illegal_module):
    with pytest.raises(StageFailed) as caught:
        check(output_type, illegal_module)
    assert caught.value.stage == "contract"
    assert len(caught.value.diagnostics) == len(sentences)
    for sentence, diagnostic in zip(sentences, caught.value.diagnostics, strict=True):
        assert sentence in str(diagnostic)
        assert ("x + x" if "arith" in sentence else "identity(y + x)") in str(diagnostic)


def test_policy_warn(illegal_module):
    with pytest.warns(ContractWarning, match=r"tosa may not hold 'arith.addi', 2 times: .* \(at .*model.py:1\)"):
        check(TOSA, illegal_module, Contract.WARN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(LINALG, SIZES.format(n=3), Contract.WARN)


@pytest.mark.parametrize("n", [3, "?"])
def test_stablehlo_computes_sizes_in_its_own_operations(n):
    with pytest.raises(StageFailed, match=r"stablehlo may not hold 'tensor.extract'"):
        check(STABLEHLO, SIZES.format(n=n))


MEMORY = """
func.func @main(%x: {type}<2xi32>) {{
  %0 = memref.alloc() : memref<2xi32>
  return
}}
"""


def test_memrefs_are_legal_for_state():
    check(LINALG, MEMORY.format(type="memref"))
    with pytest.raises(StageFailed, match=r"linalg-on-tensors may not hold 'memref.alloc'"):
        check(LINALG, MEMORY.format(type="tensor"))


UNKNOWN = """
func.func @main(%x: !torch.vtensor<[2],f32>) -> !torch.vtensor<[?,3],f32> {{
  %0 = torch.operator "mylib.op"(%x) : (!torch.vtensor<[2],f32>) -> {type}
  %1 = torch.operator "mylib.op"(%0) : ({type}) -> !torch.vtensor<[?,3],f32>
  return %1 : !torch.vtensor<[?,3],f32>
}}
"""


@pytest.mark.parametrize(
    "kind",
    ["!torch.vtensor", "!torch.tensor", "!torch.vtensor<*,f32>", "!torch.vtensor<[2,?],unk>", "!torch.any"],
)
def test_unknown_types_are_illegal_in_the_torch_dialect(kind):
    expected = f"torch may not leave a type unknown: 'torch.operator' returns {kind}"
    with pytest.raises(StageFailed) as caught:
        check(TORCH, UNKNOWN.format(type=kind))
    assert expected in str(caught.value)
    assert len(caught.value.diagnostics) == 1


@pytest.mark.parametrize(
    "kind", ["!torch.vtensor<[],si64>", "!torch.tensor<[2,?],f32>", "!torch.int", "!torch.list<optional<vtensor>>"]
)
def test_known_types(kind):
    check(TORCH, UNKNOWN.format(type=kind))


@pytest.mark.parametrize("output_type", [TORCH, LINALG, TOSA, STABLEHLO], ids=lambda each: each.value)
@pytest.mark.parametrize("policy", Contract, ids=lambda each: each.value)
def test_text_round_trips(output_type, policy):
    stage = stage_of(output_type, policy)
    assert parse_steps(str(stage)) == stage.passes


def test_policies():
    assert Contract.get("warn") is Contract.WARN
    with pytest.raises(UsageError, match="unknown contract policy 'ignore': accepted are 'error', 'warn'"):
        Contract.get("ignore")
