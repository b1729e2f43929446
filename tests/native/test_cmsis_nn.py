"""Layers of int8 by CMSIS-NN: here a stand-in in C with its documented semantics (`tests/native/cmsis_nn`)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fx_importer
from fx_importer import Lowered, UsageError, lower
from fx_importer.cli.native.build import build_model
from fx_importer.native.build import Built
from fx_importer.native.cmsis_nn import ROUNDING, find_cmsis_nn
from fx_importer.options import Options
from fx_importer.output_types import OutputType
from fx_importer.process.optional_packages import is_installed
from testing import cortex_m
from testing.microcontroller_nets import lower_to_int8
from testing.native_calls import NativeCaller
from tests.native.c_programs import COMPILER, STRICT, Program

pytest.importorskip("torchao")
FOLDER = Path(__file__).parent / "cmsis_nn"
TRAPPING = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
needs_toolchain = pytest.mark.skipif(not is_installed("ziglang"), reason="the extra 'native' is not installed")


class Layers(nn.Module):
    """Convolutions of all forms, whose results are read again after other layers."""

    def __init__(self) -> None:
        super().__init__()
        self.strided = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.dilated = nn.Conv2d(8, 8, (3, 2), padding=(2, 1), dilation=2)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.multiplied = nn.Conv2d(8, 16, (3, 1), dilation=2, groups=8)
        self.pixels = nn.Conv2d(8, 8, 1, stride=2)
        self.linear = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return results of layers."""
        y = torch.relu(self.strided(x))
        z = self.depthwise(y).clamp(-0.25, 0.5)
        added = (y + z)[:, :, :7, :7] + self.dilated(y)[:, :, :7, :7]
        return self.multiplied(y), self.pixels(added), self.linear(y.mean((2, 3)))


def _quantized(model: nn.Module, x: Tensor, output_type: str = "tosa") -> tuple[Lowered, Tensor]:
    quantized = fx_importer.quantize(torch.export.export(model.eval(), (x,)), [x], integer_io=True)
    integers = torch.randint(-128, 128, x.shape, dtype=torch.int8)
    return lower(quantized, integers, output_type=output_type, quantized="integer"), integers


@pytest.fixture(scope="module")
def layers() -> tuple[Lowered, Tensor]:
    torch.manual_seed(0)
    return _quantized(Layers(), torch.randn(2, 3, 16, 16))


def _compile(built: Built, *flags: str) -> Path:
    """Compile C source with the source of CMSIS-NN."""
    assert COMPILER is not None
    assert built.library.cmsis_nn is not None
    source = next(path for path in built.files if path.suffix == ".c")
    sources = [source, *built.library.cmsis_nn.sources()]
    options = [*STRICT, *flags, f"-I{FOLDER / 'Include'}", "-shared", "-fPIC", "-o", source.with_suffix(".so")]
    command = [str(word) for word in (COMPILER, *options, *sources, "-lm")]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[:4000]
    return source.with_suffix(".so")


@needs_compiler
def test_layers_of_c_source_are_the_same_bits(layers, tmp_path):
    lowered, x = layers
    built = lowered.build(tmp_path / "net", kind="c", cmsis_nn=FOLDER)
    assert built.library.cmsis_nn is not None
    found = built.library.cmsis_nn.layers
    assert [layer.depthwise for layer in found].count(True) == 2
    assert len(found) == 6
    assert all(layer.scratch >= 4 * layer.filter[1] * layer.filter[2] for layer in found)
    status, outputs = Program(built, _compile(built, f"-D{ROUNDING}", *TRAPPING)).call(x)
    assert status == 0
    for output, expected in zip(outputs, lowered.caller(backend="jit")(x), strict=True):
        assert output.equal(expected)


@needs_compiler
def test_c_source_refuses_the_other_rounding(layers, tmp_path):
    built = layers[0].build(tmp_path / "net", kind="c", cmsis_nn=FOLDER)
    with pytest.raises(AssertionError, match=f"compile this file and CMSIS-NN with -D{ROUNDING}"):
        _compile(built)


@needs_toolchain
def test_layers_of_a_library_are_the_same_bits(layers, tmp_path):
    lowered, x = layers
    built = lowered.build(tmp_path / "net", cmsis_nn=FOLDER)
    for output, expected in zip(NativeCaller(lowered, built)(x), lowered.caller(backend="jit")(x), strict=True):
        assert output.equal(expected)
    header = (tmp_path / "net.h").read_text()
    assert "CMSIS-NN: layers call arm_convolve_wrapper_s8 and arm_depthwise_conv_wrapper_s8" in header


@needs_toolchain
def test_objects_have_cmsis_nn_under_names_of_their_own(layers, tmp_path):
    for target in ("cortex-m4", "cortex-m55"):
        layers[0].build(tmp_path / "net", target=target, kind="object", cmsis_nn=FOLDER)
        code = (tmp_path / "net.o").read_bytes()
        assert b"\0net_arm_convolve_wrapper_s8\0" in code
        assert b"\0arm_convolve_wrapper_s8\0" not in code


@pytest.mark.slow_rows(unless="^DS-CNN")
@pytest.mark.parametrize(("net", "layers"), [("DS-CNN", 10), ("MobileNetV2 0.35", 53), ("autoencoder", 10)])
def test_networks_are_exact_on_emulated_processors(net: str, layers: int, tmp_path: Path) -> None:
    if missing := cortex_m.missing_tools():
        pytest.skip(f"not installed: {', '.join(missing)}")
    lowered, x = lower_to_int8(net)
    built = lowered.build(tmp_path / "net", kind="c", cmsis_nn=FOLDER)
    assert built.library.cmsis_nn is not None
    assert len(built.library.cmsis_nn.layers) == layers
    expected = lowered.run(x)
    for cpu in cortex_m.BOARDS:
        ran = cortex_m.run_on(cpu, built.library, tmp_path, [x])
        assert ran.status == 0
        assert ran.outputs[0].equal(expected)


@needs_compiler
def test_a_version_that_needs_more_scratch_memory_has_a_status(layers, tmp_path):
    shutil.copytree(FOLDER, folder := tmp_path / "larger")
    path = folder / "Source/ConvolutionFunctions/arm_convolve_wrapper_s8.c"
    path.write_text(path.read_text().replace("return 4 *", "return 400 *"))
    lowered, x = layers
    built = lowered.build(tmp_path / "net", kind="c", cmsis_nn=folder)
    status, _ = Program(built, _compile(built, f"-D{ROUNDING}")).call(x)
    assert built.library.entries[0].messages[status - 32].startswith("CMSIS-NN refuses a layer, or needs more scratch")


class Differences(nn.Module):
    """A layer whose sums are much smaller than its products, so that they are scaled up."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)
        self.linear.weight.data = torch.eye(4) - torch.eye(4).roll(1, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Return differences."""
        return self.linear(x)


def differences() -> tuple[nn.Module, tuple[Tensor]]:
    """Return a quantized model and its input."""
    x = torch.tensor([[1, 1.001, 0.999, 1]])
    quantized = fx_importer.quantize(torch.export.export(Differences(), (x,)), [x], integer_io=True)
    return quantized, (torch.ones(1, 4, dtype=torch.int8),)


def two_layers() -> tuple[nn.Module, tuple[Tensor]]:
    """Return a quantized model and its input."""
    x = torch.randn(1, 8)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    quantized = fx_importer.quantize(torch.export.export(model, (x,)), [x], integer_io=True)
    return quantized, (torch.ones(1, 8, dtype=torch.int8),)


def test_command_says_how_many_layers_call(tmp_path, capsys):
    options = Options(output_type=OutputType.TOSA)
    for model, calls in (
        ("two_layers", "2 layers, by arm_convolve_wrapper_s8"),
        ("differences", "nothing: no layer has its semantics"),
    ):
        named = f"tests.native.test_cmsis_nn:{model}"
        build_model(named, tmp_path / "net", options, target=None, kind="c", weights="embedded", cmsis_nn=FOLDER)
        assert f"net calls of CMSIS-NN: {calls}" in capsys.readouterr().out
    with pytest.raises(UsageError, match="--cmsis-nn absent is not a folder of CMSIS-NN"):
        build_model(
            named, tmp_path / "net", options, target=None, kind="c", weights="embedded", cmsis_nn=Path("absent")
        )


def test_a_folder_is_cmsis_nn(tmp_path):
    with pytest.raises(UsageError, match="is not a folder of CMSIS-NN: it has no Include/arm_nnfunctions.h"):
        find_cmsis_nn(tmp_path)
    (tmp_path / "Include").mkdir()
    (tmp_path / "Include" / "arm_nnfunctions.h").touch()
    with pytest.raises(UsageError, match=re.escape("no file in Source/ defines arm_convolve_wrapper_s8")):
        find_cmsis_nn(tmp_path)


@pytest.mark.parametrize("output_type", ["tosa", "linalg-on-tensors"])
def test_a_model_without_layers_of_int8_is_refused(output_type, tmp_path):
    lowered = lower(nn.Conv2d(2, 2, 3), torch.ones(1, 2, 4, 4), output_type=output_type)
    with pytest.raises(UsageError, match="int8, and this module has none: quantize the model"):
        lowered.build(tmp_path / "net", kind="c", cmsis_nn=FOLDER)
    assert not [*tmp_path.iterdir()]


@needs_toolchain
def test_a_source_that_does_not_compile_is_refused(layers, tmp_path):
    shutil.copytree(FOLDER, folder := tmp_path / "broken")
    path = folder / "Source/NNSupportFunctions/arm_nn_test_result.c"
    path.write_text('#error "only for Cortex-M"\n' + path.read_text())
    with pytest.raises(UsageError, match=r"does not compile for cortex-m4: .*only for Cortex-M"):
        layers[0].build(tmp_path / "net", target="cortex-m4", kind="object", cmsis_nn=folder)
    assert not (tmp_path / "net.o").exists()
