"""Passes of the user in a lowering: results equal to eager, and errors."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import fx_importer
from fx_importer import Nested, Pass, Pipeline, Stage, StageFailed, UsageError, lower, lower_mlir_module, pipeline_for
from fx_importer.api.reproduce import reproduce
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.options import LoweringOptions

X = torch.linspace(-2, 2, 12).reshape(3, 4)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.linear(x)) + x


MODEL = Model()


@pytest.fixture(autouse=True)
def dump(tmp_path, monkeypatch):
    monkeypatch.setenv("FX_IMPORTER_DUMP_DIR", str(tmp_path))
    return tmp_path


def each(module: ir.Operation, name: str) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def see(op: ir.Operation) -> ir.WalkResult:
        if op.name == name:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(see)
    return found


def tanh_as_sigmoid(module: ir.Operation) -> None:
    """Rewrite tanh(x) to 2 sigmoid(2x) - 1."""
    for op in each(module, "tosa.tanh"):
        x, kind = op.operands[0], op.results[0].type
        with ir.InsertionPoint(op), op.location:
            twice = ir.Operation.create("tosa.add", [kind], [x, x]).results[0]
            sigmoid = ir.Operation.create("tosa.sigmoid", [kind], [twice]).results[0]
            one = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get_f32(1.0))
            ones = ir.Operation.create("tosa.const", [kind], attributes={"values": one}).results[0]
            both = ir.Operation.create("tosa.add", [kind], [sigmoid, sigmoid]).results[0]
            new = ir.Operation.create("tosa.sub", [kind], [both, ones]).results[0]
        op.results[0].replace_all_uses_with(new)
        op.erase()


def rejects_tanh(module: ir.Operation) -> None:
    for op in each(module, "torch.aten.tanh"):
        op.location.emit_error("no tanh here")


def raises(module: ir.Operation) -> None:
    raise ValueError("a defect")


def stages(lowered: fx_importer.Lowered) -> list[str]:
    return [record.name for record in lowered.trace.stages]


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("importable", [False, True])
def test_function_runs_after_a_stage(isolate, importable):
    step = tanh_as_sigmoid if importable else (lambda module: tanh_as_sigmoid(module))
    lowered = lower(
        MODEL,
        X,
        output_type="tosa",
        pipeline=lambda pipeline: pipeline.after("tosa-simplify", step, name="no-tanh").after("no-tanh", "cse"),
        isolate=isolate,
    )
    assert stages(lowered)[-7:-2] == ["tosa-simplify", "no-tanh", "cse", "backend-types", "tosa-integers"]
    assert "tosa.tanh" not in str(lowered.module)
    assert str(lowered.module).count("tosa.sigmoid") == 1
    torch.testing.assert_close(lowered.caller(backend="jit")(X), MODEL(X))
    assert lowered.verify(backends=["jit"], isolate=False)
    assert all(record.seconds > 0 for record in lowered.trace.stages)


def test_given_pipeline_replaces_the_default():
    made = pipeline_for("linalg").without_stage("contract")
    whole = Pipeline("mine", (*made.stages, Stage("tidy", "It is tidy.", (Nested("func.func", (Pass("cse"),)),))))
    lowered = lower(MODEL, X, output_type="linalg", pipeline=whole)
    assert stages(lowered)[-2:] == ["in-place", "tidy"]
    torch.testing.assert_close(lowered.run(X), MODEL(X))
    assert lowered.bisect() is None


def test_empty_pipeline_keeps_the_imported_module():
    lowered = lower(MODEL, X, output_type="linalg", pipeline=Pipeline("none", ()))
    assert "torch.aten.tanh" in str(lowered.module)


def test_replaced_stage():
    lowered = lower(
        MODEL, X, output_type="torch", pipeline=lambda p: p.replacing("torch-backend", "inline", name="torch-backend")
    )
    assert stages(lowered)[-2:] == ["torch-backend", "contract"]


def test_other_functions_of_the_api():
    given = ir.Module.parse(
        "func.func @main(%x: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> {"
        "%0 = torch.aten.tanh %x : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32> "
        "return %0 : !torch.vtensor<[2],f32> }",
        new_context(),
    )
    change = LoweringOptions(pipeline=lambda p: p.after("torch-backend", "cse").after("tosa", tanh_as_sigmoid))
    lower_mlir_module(False, "tosa", given, change)
    assert "tosa.sigmoid" in str(given)
    graph = torch.export.export(nn.Tanh(), (X,)).graph_module
    module = fx_importer.stateless_fx_import(
        graph, output_type="tosa", pipeline=lambda p: p.after("tosa-simplify", tanh_as_sigmoid)
    )
    assert "tosa.sigmoid" in str(module)
    assert "tosa.tanh" not in str(module)


@pytest.mark.advice
def test_diagnostic_of_a_function_names_operators():
    for isolate in (False, True):
        with pytest.raises(StageFailed) as caught:
            lower(
                MODEL,
                X,
                output_type="tosa",
                pipeline=lambda p: p.before("tosa", lambda module: rejects_tanh(module), name="mine"),
                isolate=isolate,
            )
        (cause,) = caught.value.causes
        assert (cause.op, cause.stage, cause.reason) == ("aten.tanh.default", "mine", "no tanh here")
        assert cause.places[0].source == "return torch.tanh(self.linear(x)) + x"
        assert any(each.endswith(", without pipeline=") for each in cause.suggestions)


@pytest.mark.parametrize("isolate", [False, True])
def test_report_of_a_function_that_raises(isolate):
    with pytest.raises(StageFailed) as caught:
        lower(MODEL, X, output_type="tosa", pipeline=lambda p: p.after("tosa", raises), isolate=isolate)
    error = caught.value
    line = raises.__code__.co_firstlineno
    assert str(error).startswith(
        f"stage 'raises' failed:\n  the pass 'raises' ({__file__}:{line}) raised ValueError: a defect\n"
        f'    at {__file__}:{line + 1}: raise ValueError("a defect")\n'
    )
    assert error.stage == "raises"
    assert error.causes == ()
    assert error.report is not None
    facts = json.loads((error.report / "report.json").read_text())
    assert facts["pipeline"] == "builtin.module(fx-importer-call{tests.e2e.test_own_passes:raises})"
    assert facts["not_recorded"] == ["pipeline"]
    page = (error.report / "report.md").read_text()
    assert "The call had `pipeline` with Python functions, which are not recorded." in page
    assert "which must be importable" in page
    with pytest.raises(UsageError, match="may run other code or open files: tests.e2e.test_own_passes:raises. To run"):
        reproduce(error.report)
    assert reproduce(error.report, trust=True).same


def test_report_of_a_local_function():
    def mine(module: ir.Operation) -> None:
        raise ValueError("a defect")

    with pytest.raises(StageFailed) as caught:
        lower(MODEL, X, output_type="tosa", pipeline=lambda p: p.after("tosa", mine))
    assert caught.value.report is not None
    page = (caught.value.report / "report.md").read_text()
    assert "`builtin.module(fx-importer-python{mine})` calls a Python function that cannot be imported." in page
    assert not (caught.value.report / "command.sh").exists()
    with pytest.raises(UsageError, match="calls the Python function 'mine' of another process"):
        reproduce(caught.value.report)


@pytest.mark.parametrize(
    "pipeline, expected",
    [
        (
            lambda p: p.after("tossa", "cse"),
            "no stage 'tossa'; its stages are: torch-backend, control-flow, tosa, ",
        ),
        (lambda p: p.after("tosa", "csee"), "'csee' does not name passes of MLIR"),
        (lambda p: None, "returned NoneType: it is a Pipeline, or a function that takes one and returns one"),
        ("cse", "pipeline='cse' is str: it is a Pipeline, or a function"),
    ],
)
def test_invalid_pipelines(pipeline, expected):
    before = list(Path.cwd().iterdir())
    with pytest.raises(UsageError, match=expected):
        lower(MODEL, X, output_type="tosa", pipeline=pipeline)
    assert list(Path.cwd().iterdir()) == before


def test_pipeline_for_takes_the_options_of_a_lowering():
    narrow = pipeline_for("tosa", narrow_integers=True, contract="warn")
    assert "fx-importer-narrow-tosa-integers-unproved" in str(narrow)
    assert "specification_version=1.0" in str(narrow)
    assert str(pipeline_for("linalg", allow_non_finites=False)).count("allow-non-finites=false") == 2
    with pytest.raises(UsageError, match="unknown output type"):
        pipeline_for("x86")


def test_scripts_copy_local_functions(tmp_path):
    class Off(nn.Module):
        def forward(self, x):
            return torch.tanh(x)

    def wrong(module: ir.Operation) -> None:
        for op in each(module, "tosa.tanh"):
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()

    lowered = lower(Off(), X, output_type="tosa", pipeline=lambda p: p.after("tosa", wrong))
    found = lowered.bisect(backend="jit", isolate=False)
    assert found is not None
    assert found.script is not None
    assert "def wrong(module" in found.script.read_text()
