"""Running a stage: failures, their diagnostics and locations."""

import numpy as np
import pytest

from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import StageFailed, UsageError
from fx_importer.mlir.bindings import ir, new_context, passmanager
from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pass, Stage, run_stage, run_text, runner
from fx_importer.targets import pipeline_for

T = "!torch.vtensor<[2],f32>"
LOWERED = [OutputType.LINALG_ON_TENSORS, OutputType.TOSA, OutputType.STABLEHLO]


def custom_op(model: str = "model.py") -> ir.Module:
    """Return a module that adds, and twice calls an op that nothing lowers, at line 2 of ``model``."""
    where = f'loc(fused["layers.0", callsite("torch/nn/modules/module.py":9:1 at "{model}":2:1)])'
    text = f"""
    func.func @main(%x: {T}) -> {T} {{
      %one = torch.constant.int 1
      %0 = torch.aten.add.Tensor %x, %x, %one : {T}, {T}, !torch.int -> {T}
      %1 = torch.operator "torch.mylib.twice"(%0, %one) : ({T}, !torch.int) -> {T} {where}
      %2 = torch.operator "torch.mylib.twice"(%1, %one) : ({T}, !torch.int) -> {T} {where}
      return %2 : {T}
    }}"""
    return ir.Module.parse(text, new_context())


def lower(module: ir.Module, output_type: OutputType) -> None:
    trace = Trace()
    for stage in pipeline_for(output_type, LoweringOptions()).stages:
        with trace.stage(stage.name, module, pipeline=str(stage)):
            run_stage(stage, module)


def test_unregistered_op_is_kept_in_the_torch_dialect():
    module = custom_op()
    lower(module, OutputType.TORCH)
    assert str(module).count('torch.operator "torch.mylib.twice"') == 2


@pytest.mark.parametrize("output_type", LOWERED)
def test_failure_names_stage_op_and_source_line(output_type, tmp_path, capfd):
    model = tmp_path / "model.py"
    model.write_text("def forward(x):\n    return twice(twice(x))\n")
    with pytest.raises(StageFailed) as caught:
        lower(custom_op(str(model)), output_type)
    assert caught.value.stage == "backend-types"
    assert str(caught.value).startswith(
        "stage 'backend-types' failed:\n"
        "  error: nothing lowered 'torch.mylib.twice', 2 times\n"
        f"      at {model}:2 in layers.0\n"
        "          return twice(twice(x))\n"
    )
    assert capfd.readouterr() == ("", "")


def test_result_of_a_stage_is_verified():
    module = custom_op()
    function = module.body.operations[0]
    with module.context:
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([], []))
    with pytest.raises(ir.MLIRError) as caught:
        run_stage(Stage("nothing", "", ()), module)
    assert caught.value.error_diagnostics


def test_error_swallowed_by_a_pass_is_a_failure(monkeypatch):
    """No pass of the wheel is known to do so on valid input, so the test has a pass that does."""

    def swallow(operation, _this):
        operation.location.emit_error("gave up on it")

    def add(passes: passmanager.PassManager, text: str) -> None:
        passes.add(swallow)
        passes.add(text)

    monkeypatch.setattr(runner, "_add", add)
    with pytest.raises(StageFailed, match="error: gave up on it") as caught, Trace().stage("s"):
        run_stage(Stage("s", "", (Pass("cse"),)), custom_op())
    assert [diagnostic.message for diagnostic in caught.value.diagnostics] == ["gave up on it"]


def test_complex_numbers_fail_in_the_conversion_to_linalg():
    """``convert-torch-to-linalg`` reports an error here, and succeeds; the illegal op would be found a stage later."""
    c64 = "!torch.vtensor<[2],complex<f32>>"
    text = f"""
    func.func @main(%x: !torch.vtensor<[2,2],f32>) -> {c64} {{
      %two = torch.constant.int 2
      %0 = torch.aten.view_as_complex %x : !torch.vtensor<[2,2],f32> -> {c64}
      %1 = torch.aten.mul.Scalar %0, %two : {c64}, !torch.int -> {c64}
      return %1 : {c64}
    }}"""
    with pytest.raises(StageFailed, match="Only integer/float dtype supported") as caught:
        lower(ir.Module.parse(text, new_context()), OutputType.LINALG_ON_TENSORS)
    assert caught.value.stage == "linalg"


def test_printing_elides_weights(capfd):
    dense, resource = (np.arange(start, start + 100, dtype=np.float32).tobytes().hex() for start in (0, 100))
    text = f"""
    func.func @main() -> !torch.vtensor<[100],f32> {{
      %0 = torch.vtensor.literal(dense_resource<w> : tensor<100xf32>) : !torch.vtensor<[100],f32>
      %1 = torch.vtensor.literal(dense<"0x{dense}"> : tensor<100xf32>) : !torch.vtensor<[100],f32>
      return %1 : !torch.vtensor<[100],f32>
    }}
    {{-# dialect_resources: {{ builtin: {{ w: "0x04000000{resource}" }} }} #-}}"""
    run_stage(Stage("s", "", (Pass("symbol-dce"),)), ir.Module.parse(text, new_context()), print_passes=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "IR Dump After SymbolDCE" in err
    assert dense[200:220] not in err.lower()
    assert resource[200:220] not in err.lower()


@pytest.mark.parametrize("text", ["", "cse", "func.func(cse)", "builtin.module(cse", "builtin.module(no-such-pass)"])
def test_invalid_pipeline_text(text):
    with pytest.raises(UsageError, match="not a pass pipeline"):
        run_text(text, custom_op())


def test_pipeline_text_runs():
    module = custom_op()
    run_text(" builtin.module( func.func(cse, canonicalize) )\n", module)
    assert str(module).count("torch.constant.int") == 1


def test_foreign_context():
    module = ir.Module.parse("func.func @f() { return }", ir.Context())
    run_stage(Stage("s", "", (Pass("torch-func-backend-type-conversion"),)), module)
