"""Replacements for torch-mlir's `run_pipeline_with_repro_report` and `lower_mlir_module`."""

from enum import Enum
from types import SimpleNamespace

import numpy as np
import pytest

from fx_importer import BackendLoweringOptions, OutputType, lower_mlir_module, run_pipeline_with_repro_report
from fx_importer.errors import StageFailed, UsageError
from fx_importer.mlir.bindings import ir, new_context

T = "!torch.vtensor<[2],f32>"


@pytest.fixture(autouse=True)
def dump(tmp_path, monkeypatch):
    monkeypatch.setenv("FX_IMPORTER_DUMP_DIR", str(tmp_path))
    return tmp_path


def module(op: str = "torch.aten.relu") -> ir.Module:
    text = f"func.func @main(%x: {T}) -> {T} {{ %0 = {op} %x : {T} -> {T} return %0 : {T} }}"
    return ir.Module.parse(text, new_context())


class TorchMlirOutputType(Enum):
    TOSA = "tosa"


@pytest.mark.parametrize(
    "output_type, op",
    [
        ("raw", "torch.aten.relu"),
        (OutputType.TORCH, "torch.aten.relu"),
        ("linalg-on-tensors", "linalg.generic"),
        (TorchMlirOutputType.TOSA, "tosa.clamp"),
        (OutputType.STABLEHLO, "stablehlo.maximum"),
    ],
)
def test_lower(output_type, op, capsys):
    given = module()
    assert lower_mlir_module(False, output_type, given) is given
    assert op in str(given)
    assert capsys.readouterr() == ("", "")


def test_lowering_starts_from_the_torch_backend_form():
    """Operations that the torch backend stage kept are not decomposed by later stages."""
    given = module("torch.aten.silu")
    lower_mlir_module(False, "torch", given)
    assert "torch.aten.silu" in str(given)


def test_verbose_prints_the_module_without_large_constants(capsys):
    digits = np.arange(100, dtype=np.float32).tobytes().hex()
    given = ir.Module.parse(
        f"""
        func.func @main() -> !torch.vtensor<[100],f32> {{
          %0 = torch.vtensor.literal(dense<"0x{digits}"> : tensor<100xf32>) : !torch.vtensor<[100],f32>
          return %0 : !torch.vtensor<[100],f32>
        }}""",
        new_context(),
    )
    lower_mlir_module(True, "linalg", given)
    printed = capsys.readouterr().out
    assert "arith.constant dense_resource<__elided__> : tensor<100xf32>" in printed
    assert digits[200:220] not in printed.lower()


@pytest.mark.parametrize("options", [BackendLoweringOptions(False), SimpleNamespace(allow_non_finites=False)])
def test_backend_options(options):
    given = ir.Module.parse(
        """
        func.func @main(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2],f32> {
          %one = torch.constant.int 1
          %false = torch.constant.bool false
          %0, %1 = torch.aten.max.dim %x, %one, %false : !torch.vtensor<[2,3],f32>, !torch.int, !torch.bool
            -> !torch.vtensor<[2],f32>, !torch.vtensor<[2],si64>
          return %0 : !torch.vtensor<[2],f32>
        }""",
        new_context(),
    )
    lower_mlir_module(False, "linalg", given, options)
    assert "0xFF800000" not in str(given)


def test_failing_lowering():
    with pytest.raises(StageFailed, match=r"nothing lowered 'torch.aten.asin'") as caught:
        lower_mlir_module(False, "tosa", module("torch.aten.asin"))
    assert caught.value.report is not None


def test_invalid_output_type():
    with pytest.raises(UsageError, match="accepted are 'raw', 'torch'"):
        lower_mlir_module(False, "onnx", module())


@pytest.mark.parametrize("context", [ir.Context, new_context], ids=["a bare context", "a context of ours"])
def test_run_pipeline(context):
    given = ir.Module.parse("func.func private @f() func.func @g() { return }", context())
    assert run_pipeline_with_repro_report(given, "builtin.module(symbol-dce)", "Tidying up") is None
    assert [str(each.name.value) for each in given.body.operations] == ["g"]


def test_failing_pipeline(dump):
    text = "builtin.module(func.func(torch-finalizing-backend-type-conversion))"
    with pytest.raises(
        StageFailed, match=r"^stage 'Torch -> Backend IR' failed:\n  error: failed to legalize"
    ) as caught:
        run_pipeline_with_repro_report(module(), text, "Torch -> Backend IR")
    report = caught.value.report
    assert report is not None
    assert report.parent == dump
    assert report.name.startswith("fx-importer-Torch-Backend-IR-failed-")
    assert text in (report / "command.sh").read_text()


def test_invalid_pipeline_text_leaves_no_report(dump):
    with pytest.raises(UsageError, match="'no-such-pass' does not refer to a registered pass"):
        run_pipeline_with_repro_report(module(), "builtin.module(no-such-pass)", "")
    assert list(dump.iterdir()) == []


def test_passes_are_printed(capfd):
    run_pipeline_with_repro_report(module(), "builtin.module(func.func(cse))", "", enable_ir_printing=True)
    assert "IR Dump After CSEPass" in capfd.readouterr().err
