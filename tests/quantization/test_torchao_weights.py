"""Models that torchao's ``quantize_`` has quantized."""

import importlib.util
from typing import Any

import pytest
import torch

from fx_importer import lower

CONFIGS = {
    "Int8WeightOnlyConfig": {},
    "IntxWeightOnlyConfig": {"weight_dtype": torch.int4},  # pyright: ignore[reportAttributeAccessIssue]
    "Int8DynamicActivationInt8WeightConfig": {},
    "Int8DynamicActivationIntxWeightConfig": {"weight_dtype": torch.int4},  # pyright: ignore[reportAttributeAccessIssue]
    "Float8WeightOnlyConfig": {},
}
ENGINES = {"linalg-on-tensors": "jit", "stablehlo": "xla"}


def quantized(name: str, dtype: torch.dtype) -> Any:
    """Return two layers, quantized as ``name`` says."""
    quantization = pytest.importorskip("torchao.quantization")
    torch.manual_seed(0)
    layers = (torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 32, bias=False))
    model = torch.nn.Sequential(*layers).eval().requires_grad_(False).to(dtype)
    quantization.quantize_(model, getattr(quantization, name)(**CONFIGS[name]))
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "output_type",
    ["linalg-on-tensors", *(pytest.param(each, marks=pytest.mark.slow) for each in ("stablehlo", "tosa"))],
)
@pytest.mark.parametrize("name", CONFIGS)
def test_quantized_layers_are_lowered_and_stay_packed(name, output_type, dtype):
    """Weights are bytes in the module, and results those of torchao's own operators."""
    backend = ENGINES.get(output_type)
    if backend == "xla" and importlib.util.find_spec("jax") is None:
        pytest.skip("the extra 'xla' is not installed")
    if output_type == "tosa" and importlib.util.find_spec("tosa_reference_model") is None:
        pytest.skip("the extra 'tosa' is not installed")
    model, x = quantized(name, dtype), torch.randn(3, 64, generator=torch.Generator().manual_seed(1)).to(dtype)
    lowered = lower(model, x, output_type=output_type, weights="external")
    held = {each.type.dtype for each in lowered.manifest.weights.values() if len(each.type.sizes) == 2}
    assert held & {"int8", "float8_e4m3fn"}
    widest = [each for each in lowered.manifest.weights.values() if each.type.sizes in ((96, 64), (32, 96))]
    assert {each.type.dtype for each in widest} <= {"int8", "float8_e4m3fn"}
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(lowered.caller(backend=backend)(x), model(x), rtol=tolerance, atol=tolerance)
