"""Building blocks of reductions."""

from functools import partial
from pathlib import Path

import pytest
import torch

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.options import ImportOptions, Mutation, Weights
from fx_importer.reduction import Kind, Symptom, Trials
from fx_importer.reduction.ddmin import minimized
from fx_importer.reduction.pass_reduction import Case, operations_in, reduced_case, with_operations
from fx_importer.reduction.program_source import listed
from fx_importer.reduction.repro_script import import_arguments
from fx_importer.reduction.subprogram import blank_values, eager_values, part
from fx_importer.reduction.symptom import normalized


@pytest.mark.parametrize("needed", [{0}, {99}, {41, 42}, {3, 50, 96}, set(range(7))])
def test_ddmin_keeps_the_required_items(needed: set[int]):
    tried: list[tuple[int, ...]] = []

    def persists(items):
        tried.append(tuple(items))
        return needed <= set(items)

    assert set(minimized(range(100), persists)) == needed
    assert len(tried) == len(set(tried))
    assert len(tried) < 20 * len(needed) + 10


@pytest.mark.parametrize(
    "message, expected",
    [
        ("failed to legalize '%12:2 = \"torch.aten.f\"(%arg0)'", "failed to legalize '% = \"torch.aten.f\"(%)'"),
        ("nothing lowered 'torch.aten.f', 12 times", "nothing lowered 'torch.aten.f'"),
        ("tensor<2x?x3xf32> and tensor<i64>", "tensor<#x#x#xf32> and tensor<i64>"),
        ("!torch.vtensor<[2,?],si64> at -1.5e-3", "!torch.vtensor<[#,#],si64> at #"),
    ],
)
def test_normalized_messages(message: str, expected: str):
    assert normalized(message) == expected


def test_equal_failures():
    original = Symptom(Kind.FAILED, "linalg", ("a", "b"))
    assert Symptom(Kind.FAILED, "linalg", ("c", "a")).is_same_as(original)
    assert not Symptom(Kind.FAILED, "linalg", ("b",)).is_same_as(original)
    assert not Symptom(Kind.FAILED, "importing", ("a",)).is_same_as(original)
    assert not Symptom(Kind.CRASHED, "linalg", ("a",)).is_same_as(original)
    of_operators = Symptom(Kind.FAILED, "linalg", ("a",), operators=("aten.f.default",))
    assert Symptom(Kind.FAILED, "linalg", ("other",), operators=("aten.f.default",)).is_same_as(of_operators)
    assert not Symptom(Kind.FAILED, "linalg", ("a",), operators=("aten.g.default",)).is_same_as(of_operators)
    mismatch = Symptom(Kind.MISMATCH, "on jit", ("different values",), severity=0.5)
    assert Symptom(Kind.MISMATCH, "on jit", ("different values",), severity=0.1).is_same_as(mismatch)
    assert not Symptom(Kind.MISMATCH, "on jit", ("different values",), severity=0.001).is_same_as(mismatch)
    assert not Symptom(Kind.MISMATCH, "on jit", ("NaN on one side",), severity=0.5).is_same_as(mismatch)


class Some(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        values, indices = torch.topk(self.linear(x * 2), size)
        return torch.sin(values) + values, indices


@pytest.fixture(scope="module")
def program() -> torch.export.ExportedProgram:
    return torch.export.export(Some(), (torch.ones(2, 4), 3))


def test_subprogram_has_computed_inputs(program: torch.export.ExportedProgram):
    chosen = part(program, ["sin"])
    small = chosen.extracted(partial(eager_values, program))
    assert (chosen.nodes, chosen.outputs) == (("sin",), ("sin",))
    assert small.example_inputs
    (given,) = small.example_inputs[0]
    assert torch.equal(small.module()(given)[0], torch.sin(given))
    assert torch.equal(torch.sin(given) + given, program.module()(torch.ones(2, 4), 3)[0])


def test_subprogram_has_weights_and_tuple_results(program: torch.export.ExportedProgram):
    chosen = part(program, ["linear", "getitem_1"])
    assert chosen.nodes == ("linear", "topk", "getitem_1")
    small = chosen.extracted(partial(blank_values, program))
    assert set(small.state_dict) == {"linear.weight", "linear.bias"}
    assert small.module()(torch.zeros(2, 4))[0].shape == (2, 3)


def test_program_as_python(program: torch.export.ExportedProgram):
    small = part(program, ["linear", "topk", "getitem"]).extracted(partial(blank_values, program))
    listing = listed(small, numbers=False)
    assert str(listing).splitlines()[3:] == [
        "class Model(torch.nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.register_buffer('p_linear_weight', torch.randn(4, 4))",
        "        self.register_buffer('p_linear_bias', torch.randn(4))",
        "",
        "    def forward(self, mul):",
        "        p_linear_weight = self.p_linear_weight",
        "        p_linear_bias = self.p_linear_bias",
        "        linear = torch.ops.aten.linear.default(mul, p_linear_weight, p_linear_bias)",
        "        topk = torch.ops.aten.topk.default(linear, 3)",
        "        getitem = topk[0]",
        "        return getitem",
        "",
        "",
        "inputs = (torch.randn(2, 4),)",
    ]
    model, inputs, _ = listing.built()
    assert model(*inputs).shape == (2, 3)


FUNCTION = """
func.func @main(%x: tensor<2xf32> {some.name = "x"}, %choice: i1) -> (tensor<2xf32>, i32) {
  %number = arith.constant 1 : i32
  %twice = arith.addf %x, %x : tensor<2xf32>
  %chosen = scf.if %choice -> tensor<2xf32> {
    scf.yield %twice : tensor<2xf32>
  } else {
    %erf = math.erf %twice : tensor<2xf32>
    scf.yield %erf : tensor<2xf32>
  }
  %last = arith.addf %chosen, %chosen : tensor<2xf32>
  return %last, %number : tensor<2xf32>, i32
}
"""


def test_operations_of_a_function():
    assert operations_in(FUNCTION) == 4
    load_dialects(context := new_context())
    module = ir.Module.parse(with_operations(FUNCTION, [2]), context)
    function = module.body.operations[0]
    assert [each.operation.name for each in function.regions[0].blocks[0].operations] == ["scf.if", "func.return"]
    assert str(function.attributes["function_type"]) == "(i1, tensor<2xf32>) -> tensor<2xf32>"


def test_crashing_pass(tmp_path: Path):
    fault = "fx-importer-call{tests.reduction.faults:abort_on_erf}"
    case = Case(FUNCTION, "made-up", f"builtin.module(cse,func.func(canonicalize),{fault},cse)")
    trials = Trials(30.0)
    symptom = trials.run(case.run)
    assert symptom == Symptom(Kind.CRASHED, "made-up", ("SIGABRT",))
    assert symptom
    found = reduced_case(case, symptom, trials, tmp_path)
    assert found.pipeline == f"builtin.module({fault})"
    assert operations_in(found.text) == 1
    assert "math.erf" in found.text


def test_scripts_have_the_import_options():
    assert import_arguments(ImportOptions()) == []
    options = ImportOptions(weights=Weights.ARGS, outline_layers=True, mutation=Mutation.FUNCTIONAL)
    assert import_arguments(options) == ["mutation='functional'", "weights='args'", "outline_layers=True"]
