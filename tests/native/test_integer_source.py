"""Integer models as C source: bit-exact, without floats, in little memory, and on emulated microcontrollers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fx_importer
from fx_importer import lower
from testing import cortex_m
from testing.microcontroller_nets import NETS, lower_to_int8
from tests.native.c_programs import COMPILER, SANITIZED, Program, build_c

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


@pytest.mark.parametrize(
    "output_type, activations", [("tosa", "int8"), ("linalg-on-tensors", "int8"), ("tosa", "int16")]
)
def test_a_convolution_of_integers_is_exact_and_has_no_floats(
    output_type: str, activations: str, tmp_path: Path
) -> None:
    pytest.importorskip("torchao")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 1)).eval()
    x = torch.randn(1, 3, 12, 12)
    quantized = fx_importer.quantize(torch.export.export(model, (x,)), [x], integer_io=True, activations=activations)
    dtype, width = getattr(torch, activations), int(activations[3:]) // 8
    integers = torch.randint(-128, 128, x.shape, dtype=dtype)
    lowered = lower(quantized, integers, output_type=output_type, quantized="integer")
    built, path = build_c(lowered, tmp_path)
    ((scale, zero_point),) = quantized.meta["input_scales"]
    (argument,), (result,) = lowered.manifest.functions["main"].arguments, lowered.manifest.functions["main"].results
    assert argument.scale == (scale, zero_point)
    assert result.scale == quantized.meta["result_scales"][0]
    header = (tmp_path / "net.h").read_text()
    assert f"_SCALE {float(np.float32(scale))!r}f\n#define NET_RUN_INPUT_ZERO_POINT {zero_point}\n" in header
    source = (tmp_path / "net.c").read_text()
    assert not re.search(r"\b(float|double|math)\b", source)
    between, last, row = 16 * 12 * 12, 8 * 12 * 12, 16 * 12 * 4  # elements, and bytes of a row of sums
    assert built.library.entries[0].arena <= width * (between + last + row) + 4 * 64
    status, (found,) = Program(built, path).call(integers)
    assert status == 0
    assert found.equal(lowered.run(integers))


@pytest.mark.slow_rows(unless="^linear$")
@pytest.mark.parametrize("net", NETS)
def test_networks_are_exact_on_emulated_processors(net: str, tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    if missing := cortex_m.missing_tools():
        pytest.skip(f"not installed: {', '.join(missing)}")
    lowered, x = lower_to_int8(net)
    built = lowered.build(tmp_path / "net", kind="c")
    expected = lowered.run(x)
    for cpu in cortex_m.BOARDS:
        ran = cortex_m.run_on(cpu, built.library, tmp_path, [x])
        assert ran.status == 0
        assert ran.outputs[0].equal(expected)
        assert ran.sections.get(".data", 0) + ran.sections.get(".bss", 0) == 0, "there are writable globals"
    _, path = build_c(lowered, tmp_path, flags=("-O1", *SANITIZED))
    assert path.exists()


def test_sums_of_a_mean_and_of_a_linear_layer_are_not_in_memory_as_a_whole(tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    torch.manual_seed(0)
    pooled = nn.AdaptiveAvgPool2d(1)
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), pooled, nn.Flatten(), nn.Linear(32, 640)).eval()
    x = torch.randn(1, 3, 12, 12)
    quantized = fx_importer.quantize(torch.export.export(model, (x,)), [x], integer_io=True)
    integers = torch.randint(-128, 128, x.shape, dtype=torch.int8)
    lowered = lower(quantized, integers, output_type="tosa", quantized="integer")
    built, path = build_c(lowered, tmp_path)
    assert built.library.entries[0].arena <= 32 * 100 + 3 * 144 + 1024  # the image, and the convolution in int8
    status, (found,) = Program(built, path).call(integers)
    assert status == 0
    assert found.equal(lowered.run(integers))
