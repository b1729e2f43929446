"""The Triton kernels of the GPU benchmark: right in triton's interpreter, and compiled without a device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="the extra 'triton' is not installed")

from benchmarks.gpu import kernels
from benchmarks.gpu.prepare_kernels import prepare
from fx_importer import lower

INPUTS = kernels.arguments(small=True)


@pytest.mark.slow_rows("^(vector_add|matmul|softmax|swiglu|rms_norm|rotary)$")
@pytest.mark.parametrize("name", kernels.LAUNCH)
def test_kernel_is_right(name):
    lowered = lower(kernels.LAUNCH[name], *INPUTS[name], output_type="stablehlo", strict=True)
    expected = kernels.EAGER[name](*(each.float() for each in INPUTS[name]))
    tolerance = {"cumsum": 1e-4}.get(name, 2e-2 if INPUTS[name][0].dtype == torch.bfloat16 else 1e-5)
    torch.testing.assert_close(lowered.run(*INPUTS[name]).float(), expected, rtol=tolerance, atol=tolerance)


def test_a_kernel_is_prepared(tmp_path: Path):
    prepare(tmp_path, "softmax", "cuda:sm_90", small=True)
    (record,) = json.loads((tmp_path / "kernels.json").read_text())["kernels"]
    assert (record["name"], record["grid"], record["scratch"]) == ("softmax_kernel", [8, 1, 1], 0)
    assert {each.name for each in tmp_path.iterdir()} == {"kernels.json", *record["files"]}
