"""``fx-importer vela``: a float model on Ethos-U, with Vela's estimate, and what is refused."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import fx_importer
from fx_importer import UsageError
from fx_importer.cli.commands.vela import (
    check_vela_options,
    compile_model,
    floating_operators,
    lower_to_integers,
    quantized_call,
)
from fx_importer.engines.vela.vela import check_accelerator, compile_with_vela, refused
from fx_importer.errors import NotInstalledError

REFUSED = """Traceback (most recent call last):
RuntimeError: Compilation failed: Validation error:
MatMul:
 - Invalid argument A
 - Input data type not supported for this operator
Exp:
 - Unsupported operation
"""


def test_what_vela_refuses_by_operator() -> None:
    assert refused(REFUSED).splitlines()[1:] == [
        "  MatMul: Invalid argument A, Input data type not supported for this operator",
        "  Exp: Unsupported operation",
    ]
    assert (
        refused("Traceback (most recent call last):\nRuntimeError: it could not run\nWarning:")
        == "\n  it could not run"
    )
    assert refused("some\nother\nfailure\nof Vela").splitlines()[-1] == "  of Vela"


def test_without_vela(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotInstalledError, match="fx-importer\\[vela\\]"):
        check_accelerator("ethos-u85-256")


def _check_arrays(model: str, folder: Path, scale: dict[str, float]) -> None:
    """Compile arrays of C, with images that have channels last, and read them with a C compiler."""
    compile_model(model, ["ethos-u55-128"], folder / "net.h", None, ("--optimise", "Size"), nhwc=True)
    text = (folder / "net.h").read_text()
    assert f"#define NET_INPUT_0_ZERO_POINT {scale['zero_point']}\n" in text
    written = re.search(r"NET_INPUT_0_SCALE (\S+)f\n", text)
    assert written is not None
    assert float(written[1]) == pytest.approx(scale["scale"], rel=1e-6)
    assert "/* shape 1x1x1x8x8x3, 1 byte(s) an element */\n#define NET_INPUT_0" in text
    if compiler := shutil.which("cc"):
        use = '#include "net.h"\nint main(void) { return net_weights[0] + net_command_stream[0] == NET_OUTPUT_0_SIZE; }'
        (folder / "use.c").write_text(use)
        subprocess.run(
            [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", folder / "use.c"], check=True
        )


@pytest.mark.parametrize(
    "config, optimise, message",
    [
        (Path("missing.ini"), None, "--config: there is no file 'missing.ini'"),
        (None, "Speed", "--optimise: Vela has no strategy 'Speed': Performance and Size"),
    ],
    ids=["config", "optimise"],
)
def test_options_of_vela_are_checked_first(config: Path | None, optimise: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_vela_options(config, optimise)


def test_scales_of_a_program_of_integers() -> None:
    pytest.importorskip("torchao")
    x = torch.randn(1, 4)
    quantized = fx_importer.quantize(nn.Linear(4, 2), [x], integer_io=True)
    program = torch.export.export(quantized, (x.to(torch.int8),))
    module, inputs = quantized_call(program)
    assert module.meta["input_scales"] == quantized.meta["input_scales"] != [None]
    assert module.meta["result_scales"] == quantized.meta["result_scales"] != [None]
    assert inputs.args[0].dtype == torch.int8


class Unsigned(nn.Module):
    """Pooling of uint8 between float inputs and results, as x86 quantizers write it."""

    def forward(self, x: Tensor) -> Tensor:
        ops, scale = torch.ops.quantized_decomposed, (0.02, 100, 0, 255, torch.uint8)
        x = ops.dequantize_per_tensor.default(ops.quantize_per_tensor.default(x, *scale), *scale)
        pooled = ops.quantize_per_tensor.default(F.max_pool2d(x, 2), *scale)
        return ops.dequantize_per_tensor.default(pooled, *scale)


def test_scales_of_uint8_have_zero_points_of_uint8() -> None:
    pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    model, x = Unsigned(), torch.rand(1, 2, 4, 4) * 4 - 1
    torch.export.save(torch.export.export(model, (x,)), file := io.BytesIO())
    module, inputs = quantized_call(torch.export.load(file))
    assert module.meta["input_scales"] == module.meta["result_scales"] == [(0.02, 100)]
    lowered = lower_to_integers((module, inputs))
    (argument,), (result,) = lowered.manifest.functions["main"].arguments, lowered.manifest.functions["main"].results
    assert argument.scale == result.scale == (0.02, 100)
    (found,) = tree_leaves(lowered.run(*inputs.args))
    torch.testing.assert_close((found - 100.0) * 0.02, model(x))


def test_estimates_of_a_float_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torchao")
    pytest.importorskip("ethosu")
    pytest.importorskip("tosa_reference_model")
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    file = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, (torch.randn(1, 3, 8, 8),)), file)
    accelerators = ["ethos-u55-128", "ethos-u85-256"]
    compile_model(str(file), accelerators, None, None, json_file=tmp_path / "found.json")
    assert "0 on the CPU" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert [each["accelerator"] for each in found] == accelerators
    assert all(each["cycles"]["total"] > 0 and each["memory"]["SRAM"] > 0 for each in found)
    compile_model(str(file), accelerators[:1], tmp_path / "model.tflite", None)
    assert (tmp_path / "model.tflite").stat().st_size > 0
    _check_arrays(str(file), tmp_path, found[0]["inputs"][0])
    compile_model(str(file), accelerators[1:], None, None, json_file=tmp_path / "int16.json", activations="int16")
    wide = json.loads((tmp_path / "int16.json").read_text())[0]
    assert wide["cpu_operators"] == 0
    assert wide["memory"]["SRAM"] > found[1]["memory"]["SRAM"]
    with pytest.raises(UsageError, match="no accelerator 'ethos-u85-255': it .* did you mean 'ethos-u85-256'"):
        check_accelerator("ethos-u85-255")


def test_what_has_no_integer_form() -> None:
    pytest.importorskip("torchao")
    model = nn.Sequential(nn.Linear(4, 4), nn.Softsign(), nn.PReLU(), nn.Linear(4, 4), nn.CELU())
    program = torch.export.export(nn.Sequential(model, nn.LocalResponseNorm(2)), (torch.randn(1, 3, 4, 4),))
    listed = floating_operators(lower_to_integers(quantized_call(program)))
    assert listed
    assert all(" = aten." in line for line in listed)


class Interpolated(nn.Module):
    """Attention over the pixels of an image, between a bilinear and a nearest resize."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = F.interpolate(x, scale_factor=(2, 4), mode="bilinear")
        pixels = self.norm(x.flatten(2).mT)
        pixels = pixels + self.attention(pixels, pixels, pixels, need_weights=False)[0]
        return F.interpolate(pixels.mT.reshape(x.shape), scale_factor=3.0)


def test_resizes_of_ethos_u55() -> None:
    """They are convolutions and copies, bit by bit `tosa.resize`; the softmax has no division."""
    pytest.importorskip("torchao")
    pytest.importorskip("ethosu")
    pytest.importorskip("tosa_reference_model")
    torch.manual_seed(0)
    program = torch.export.export(Interpolated().eval(), (torch.randn(1, 8, 3, 2),))
    quantized = quantized_call(program)
    lowered, without = (lower_to_integers(quantized, resizes) for resizes in (True, False))
    assert str(lowered.module).count("tosa.resize") == 2
    assert "tosa.resize" not in str(without.module)
    assert without.verify(*quantized[1].args, backends=["tosa_reference"], rtol=0, atol=0)
    assert compile_with_vela(without.module, "ethos-u55-128", None, ()).cpu_operators == 0
    with pytest.raises(UsageError, match="Resize"):
        compile_with_vela(lowered.module, "ethos-u55-128", None, ())
