"""Checks of IREE on a device of Vulkan, in a process of their own: on lavapipe, a device keeps two threads busy.

python -m tests.engines.vulkan_checks [CHECK …]     # prints why each check fails, or null, as JSON
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import replace

import pytest
import torch

from fx_importer import StageFailed, UsageError, lower
from fx_importer.engines import IreeBackend
from fx_importer.engines.iree.iree_devices import check_device as probe
from fx_importer.engines.iree.iree_targets import iree_target

BASELINE = "vulkan:vp_android_baseline_2022"


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


def verified(model: str, output_type: str) -> None:
    module, x = MODELS[model]
    assert lower(module, x, output_type=output_type).verify(x, backends=[IreeBackend(target=BASELINE)])


def check_tokens() -> None:
    verified("tokens", "linalg-on-tensors")


def check_cnn() -> None:
    verified("cnn", "linalg-on-tensors")


def check_stablehlo() -> None:
    verified("tokens", "stablehlo")


def check_state_stays_on_the_device() -> None:
    class Counter(torch.nn.Module):
        total: torch.Tensor

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


def check_an_architecture_that_does_not_fit() -> None:
    lowered = lower(torch.nn.LayerNorm(64), torch.randn(3, 64), output_type="linalg-on-tensors")
    with pytest.raises(UsageError, match="computes wrong numbers with code for 'vulkan:rdna3'"):
        lowered.caller(backend=IreeBackend(target="vulkan:rdna3"))(torch.randn(3, 64))


def check_narrow_elements_that_the_device_would_read_wrongly() -> None:
    target = iree_target(BASELINE)
    flags = tuple(flag for flag in target.flags if "StorageBuffer8BitAccess" not in flag)
    with pytest.raises(UsageError, match=r"computes wrong numbers .* \(a bool, 8-bit or 16-bit tensor is off by"):
        probe(replace(target, flags=flags))


def check_an_integer_beyond_32_bits() -> None:
    lowered = lower(lambda x: x + 1, torch.arange(3), output_type="linalg-on-tensors")
    caller = lowered.caller(backend=IreeBackend(target=BASELINE))
    assert caller(torch.arange(3)).tolist() == [1, 2, 3]
    with pytest.raises(UsageError, match="beyond 32 bits"):
        caller(torch.tensor([0, 1, 2**40]))


class Offsets(torch.nn.Module):
    """An int64 buffer, whose elements are indices, and a comparison with a number that is a float64 in PyTorch."""

    offsets: torch.Tensor

    def __init__(self, last: int = 2):
        super().__init__()
        self.register_buffer("offsets", torch.tensor([0, 1, last]))

    def forward(self, x):
        return torch.nn.functional.softplus(x)[self.offsets], x[self.offsets % 3]


def check_constants_of_64_bits() -> None:
    x = torch.linspace(-30, 30, 12).reshape(3, 4)
    for output_type in ("linalg-on-tensors", "stablehlo"):
        assert lower(Offsets(), x, output_type=output_type).verify(x, backends=[IreeBackend(target=BASELINE)])


def check_the_torch_dialect_with_float64_scalars() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Softplus()).eval()
    x = torch.randn(3, 8)
    assert lower(model, x, output_type="torch").verify(x, backends=[IreeBackend(target=BASELINE)])
    with pytest.raises(StageFailed, match="f64"):
        lower(lambda x: x.double().exp(), x, output_type="torch").compile(BASELINE)


def check_reductions_of_64_bits() -> None:
    x = torch.tensor([[-3, -5], [7, 9]])
    for output_type in ("linalg-on-tensors", "stablehlo"):
        lowered = lower(lambda x: (x.amax(1), x.amin(1), x.argmax(1), x.cummax(1)), x, output_type=output_type)
        assert lowered.verify(x, backends=[IreeBackend(target=BASELINE)])
    with pytest.raises(UsageError, match=r"starts the int64 reduction torch\.aten\.max\.dim from a wrong number"):
        lower(lambda x: x.amax(1), x, output_type="torch").compile(BASELINE)


def check_narrow_elements() -> None:
    x = torch.linspace(-30, 30, 64 * 128).reshape(64, 128)

    def model(mask, *narrow):
        return torch.where(mask, x, -x), *(each.float() * 2 for each in narrow), *(each + each for each in narrow)

    dtypes = (torch.int8, torch.uint8, torch.int16, torch.float16, torch.bfloat16)
    arguments = (x > 3, *(x.abs().to(dtype) for dtype in dtypes))
    lowered = lower(model, *arguments, output_type="linalg-on-tensors")
    assert lowered.verify(*arguments, backends=[IreeBackend(target=BASELINE)])


def check_a_constant_beyond_32_bits() -> None:
    lowered = lower(lambda x: x + torch.tensor([1, 2**40]), torch.arange(2), output_type="linalg-on-tensors")
    with pytest.raises(UsageError, match="computes in 32 bits, and the constant '.*' has values beyond"):
        lowered.compile(BASELINE)


CHECKS = {name: check for name, check in list(globals().items()) if name.startswith("check_")}


def main() -> None:
    found: dict[str, str | None] = {}
    for name in sys.argv[1:] or CHECKS:
        try:
            CHECKS[name]()
            found[name] = None
        except Exception:
            found[name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
