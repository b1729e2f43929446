"""IREE for GPUs: compiled without a device, and run on Vulkan where this machine has one."""

from __future__ import annotations

import pytest
import torch

from fx_importer import UsageError, lower
from fx_importer.execution import IreeBackend

pytest.importorskip("iree.compiler", reason="the extra 'iree' is not installed")

import iree.runtime

BASELINE = "vulkan:vp_android_baseline_2022"


def has_device(driver: str) -> bool:
    try:
        iree.runtime.Config(driver)
    except (RuntimeError, ValueError):
        return False
    return True


needs_vulkan = pytest.mark.skipif(
    not has_device("vulkan"), reason="no device of Vulkan: apt-get install mesa-vulkan-drivers"
)


class Tokens(torch.nn.Module):
    """An embedding and an attention layer with a causal mask: int64 in and inside."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 32)
        self.norm = torch.nn.LayerNorm(32)

    def forward(self, tokens):
        x = self.norm(self.embedding(tokens))
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        return x, x.argmax(-1)


MODELS = {
    "tokens": (Tokens().eval(), torch.arange(24).reshape(2, 12) % 50),
    "cnn": (
        torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(128, 10),
        ).eval(),
        torch.randn(2, 3, 8, 8),
    ),
}


@pytest.mark.parametrize("target", ["cuda:sm_80", "rocm:gfx942", "metal"])
def test_a_product_compiles_without_a_device(target, tmp_path):
    model = torch.nn.Linear(256, 256, bias=False).to(torch.float16).eval()
    x = torch.randn(64, 256, dtype=torch.float16)
    compiled = lower(model, x, output_type="linalg-on-tensors").compile(target)
    assert compiled.dispatches == 1
    if target != "metal":
        assert compiled.matrix_instructions > 0
        assert compiled.vector_loads > 0
    compiled.save(tmp_path / "model.vmfb", tmp_path / "kernels")
    assert (tmp_path / "model.vmfb").read_bytes() == compiled.code
    assert {each.name for each in (tmp_path / "kernels").iterdir()} == set(compiled.kernels) != set()


@needs_vulkan
@pytest.mark.slow_rows("stablehlo")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo"])
def test_a_device_of_vulkan_computes_what_eager_does(output_type, model):
    module, x = MODELS[model]
    lowered = lower(module, x, output_type=output_type)
    assert lowered.verify(x, backends=[IreeBackend(target=BASELINE)])


@needs_vulkan
def test_state_stays_on_the_device():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            self.total += x
            return self.total * 2

    lowered = lower(Counter(), torch.ones(4), output_type="linalg-on-tensors", mutation="functional")
    caller = lowered.caller(backend=IreeBackend(target=BASELINE))
    for number in range(1, 4):
        torch.testing.assert_close(caller(torch.ones(4)), torch.full((4,), 2.0 * number))


@needs_vulkan
def test_an_architecture_that_does_not_fit_the_device_is_an_error():
    lowered = lower(torch.nn.LayerNorm(64), torch.randn(3, 64), output_type="linalg-on-tensors")
    with pytest.raises(UsageError, match="computes wrong numbers with code for 'vulkan:rdna3'"):
        lowered.caller(backend=IreeBackend(target="vulkan:rdna3"))(torch.randn(3, 64))


@needs_vulkan
def test_an_integer_beyond_32_bits_is_an_error():
    lowered = lower(lambda x: x + 1, torch.arange(3), output_type="linalg-on-tensors")
    caller = lowered.caller(backend=IreeBackend(target=BASELINE))
    assert caller(torch.arange(3)).tolist() == [1, 2, 3]
    with pytest.raises(UsageError, match="beyond 32 bits"):
        caller(torch.tensor([0, 1, 2**40]))


@pytest.mark.parametrize(
    "target, message",
    [
        ("cuda:90", "no target 'cuda:90': cpu, cuda:sm_90"),
        ("tpu", "no target 'tpu'"),
        ("vulkan:nothing", "does not know the architecture of the target 'vulkan:nothing'"),
        ("cuda:sm_999", "does not know the architecture of the target 'cuda:sm_999'"),
        ("rocm:gfx1", "does not know the architecture of the target 'rocm:gfx1'"),
    ],
)
def test_a_target_that_there_is_not_is_named(target, message):
    lowered = lower(torch.nn.ReLU(), torch.ones(3), output_type="linalg-on-tensors")
    with pytest.raises(UsageError, match=message):
        lowered.compile(target)


@pytest.mark.skipif(has_device("cuda"), reason="this machine has a device of CUDA")
def test_a_device_that_is_not_there_is_named():
    lowered = lower(torch.nn.ReLU(), torch.ones(3), output_type="linalg-on-tensors")
    with pytest.raises(UsageError, match="this machine has no device for 'cuda:sm_80'"):
        lowered.caller(backend=IreeBackend(target="cuda:sm_80"))(torch.ones(3))
