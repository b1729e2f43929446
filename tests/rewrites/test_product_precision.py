"""The precision that products ask for on GPUs."""

import pytest
import torch
from torch import nn

from fx_importer import lower
from fx_importer.caching.versions import settings
from fx_importer.engines.engine_pipeline import run_engine_pipeline
from fx_importer.engines.xla.xla_pipeline import xla_pipeline


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.layer = nn.Conv2d(3, 3, 3), nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(self.conv(x))


@pytest.mark.parametrize(
    "dtype, matmuls, convolutions, expected",
    [
        (torch.float32, "highest", True, [False, True]),
        (torch.float32, "high", False, [True, False]),
        (torch.bfloat16, "highest", False, [False, False]),
    ],
)
def test_settings_of_pytorch(dtype, matmuls: str, convolutions: bool, expected):
    before = torch.get_float32_matmul_precision()
    module = lower(Products().to(dtype), torch.randn(1, 3, 6, 6, dtype=dtype), output_type="stablehlo").module
    try:
        torch.set_float32_matmul_precision(matmuls)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=convolutions):  # torch.testing forbids assignments
            run_engine_pipeline(xla_pipeline("cuda", 1), module)
    finally:
        torch.set_float32_matmul_precision(before)
    lines = {
        name: [line for line in str(module).splitlines() if f"stablehlo.{name}" in line]
        for name in ("convolution", "dot_general")
    }
    assert ["HIGHEST" in lines["convolution"][0], "HIGHEST" in lines["dot_general"][0]] == expected


def test_precision_of_matmuls_alone():
    module = lower(nn.Linear(4, 2), torch.randn(1, 4), output_type="stablehlo").module
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"  # the functions for both settings raise then
        run_engine_pipeline(xla_pipeline("cuda", 1), module)
        assert "'tf32'" in settings()
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
    assert "HIGHEST" not in str(module)
